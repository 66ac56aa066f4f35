"""Deliveries: claimed, resolved by their consumer, or ended without it."""
