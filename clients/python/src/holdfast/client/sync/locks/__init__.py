# Generated from aio/locks/__init__.py by generate_sync.py: change that, then run `make sync-client`.
"""Locks and semaphores of the plane, and what is made of them."""
