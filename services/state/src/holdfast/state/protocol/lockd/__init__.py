"""State in lockd's dialect of HTTP."""
