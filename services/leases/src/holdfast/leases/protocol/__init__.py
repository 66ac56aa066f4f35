"""The ways to reach leases from outside."""
