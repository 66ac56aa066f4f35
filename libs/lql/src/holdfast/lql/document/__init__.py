"""Documents as the language sees them."""
