"""Gateway: the process that clients talk to; it runs the other services, or proxies to them."""
