"""Transaction coordinator: one decision for all participants, recorded before it is applied."""
