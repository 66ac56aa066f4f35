"""The asynchronous twin: the same names as `holdfast.client.sync`, for asyncio."""
