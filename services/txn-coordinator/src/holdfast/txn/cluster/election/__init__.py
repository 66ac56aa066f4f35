"""The election of a leader, and its lease."""
