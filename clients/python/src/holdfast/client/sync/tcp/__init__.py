# Generated from aio/tcp/__init__.py by generate_sync.py: change that, then run `make sync-client`.
"""The client of the TCP listener."""
