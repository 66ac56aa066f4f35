"""Leases of keys: how they are acquired, kept, read and written under, and given back. Nothing here does I/O."""
