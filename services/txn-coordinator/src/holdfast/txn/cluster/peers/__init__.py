"""Calls to other nodes of the cluster."""
