"""A process that serves: its app, its listeners, its connections, its health and its end."""
