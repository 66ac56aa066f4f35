"""Searches: their pages, their rows, and how a namespace is searched. Nothing here does I/O."""
