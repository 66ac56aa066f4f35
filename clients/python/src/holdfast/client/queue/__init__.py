"""Messages: what is asked of a queue, and what a delivery is. Nothing here does I/O."""
