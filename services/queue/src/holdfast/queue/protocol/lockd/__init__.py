"""Queues in lockd's dialect of HTTP."""
