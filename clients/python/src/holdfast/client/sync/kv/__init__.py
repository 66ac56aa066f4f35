# Generated from aio/kv/__init__.py by generate_sync.py: change that, then run `make sync-client`.
"""Keys as etcd has them: read, changed, watched, and put with leases."""
