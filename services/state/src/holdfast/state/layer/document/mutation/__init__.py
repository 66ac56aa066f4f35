"""Mutations of a document on the server."""
