"""What a process tells of itself: metrics, traces, and where they go."""
