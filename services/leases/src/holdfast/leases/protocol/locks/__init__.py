"""Locks, semaphores and signals over HTTP: the same table as dflockd's protocol, in JSON."""
