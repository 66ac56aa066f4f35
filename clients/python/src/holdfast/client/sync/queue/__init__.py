# Generated from aio/queue/__init__.py by generate_sync.py: change that, then run `make sync-client`.
"""Queues: messages in, deliveries out, without an end if wished."""
