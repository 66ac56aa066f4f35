"""The store that lives in one process: one engine, over a shelf in memory or on disk."""
