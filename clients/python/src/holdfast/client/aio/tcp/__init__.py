"""The client of the TCP listener."""
