"""The ways to reach the coordinator from outside."""
