"""Queue: messages, the order they leave in, and the claims on them."""
