"""Calls to other processes of the plane: `port` is what callers see, `service` the pooled HTTP/1.1 client behind it."""
