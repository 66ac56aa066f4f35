"""`holdfast store`: a store that no plane has open."""
