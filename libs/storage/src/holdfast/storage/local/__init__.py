"""The store that lives in one process: one engine, over a engine in memory or on disk."""
