"""`holdfast lock`: a command that runs while a key is held."""
