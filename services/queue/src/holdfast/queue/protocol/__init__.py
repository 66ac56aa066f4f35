"""The ways to reach queues from outside."""
