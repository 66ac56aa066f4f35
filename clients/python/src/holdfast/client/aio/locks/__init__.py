"""Locks and semaphores of the plane, and what is made of them."""
