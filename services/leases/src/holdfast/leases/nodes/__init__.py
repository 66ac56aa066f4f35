"""Locks and signals of several processes over one store: each key has one home, which any of them reaches."""
