"""Documents: staged under a lease, published by the decision on its transaction."""
