"""`holdfast queue`: messages of a running plane."""
