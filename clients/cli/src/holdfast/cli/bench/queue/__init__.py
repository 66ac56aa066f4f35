"""`holdfast bench queue`: messages in, deliveries out."""
