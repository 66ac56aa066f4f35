"""Watches of documents and leases, without I/O."""
