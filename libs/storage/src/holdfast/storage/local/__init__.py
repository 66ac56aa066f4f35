"""The store that one process owns, over an engine in memory or on disk."""
