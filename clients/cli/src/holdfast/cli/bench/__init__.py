"""`holdfast bench`: loads, what they measure, and what they are measured beside."""
