"""Queues over the key space: messages come and go by nothing but put, watch and delete."""
