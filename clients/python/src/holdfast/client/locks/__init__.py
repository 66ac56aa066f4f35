"""Locks, semaphores and signals: what is asked, held and seen. Nothing here does I/O."""
