"""The synchronous twin: the same names as `holdfast.client.aio`, with threads where that one has tasks."""
