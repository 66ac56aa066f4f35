"""The ways to reach state from outside."""
