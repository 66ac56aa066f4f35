"""Watches of a namespace: what happens to documents and leases, from now on or from a revision of the past."""
