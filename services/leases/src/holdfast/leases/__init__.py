"""Leases: who holds which key, until when, under which fencing token."""
