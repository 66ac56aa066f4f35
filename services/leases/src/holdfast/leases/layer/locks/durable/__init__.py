"""Locks that outlive their process: every grant, renewal and release is recorded before it is told."""
