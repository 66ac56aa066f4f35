"""The members of the cluster."""
