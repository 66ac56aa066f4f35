"""Dispatch: what is ready is handed to the consumer that waits first."""
