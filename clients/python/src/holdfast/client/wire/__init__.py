"""Calls: what is sent, where to, how often, and what came back. Nothing here does I/O."""
