"""Multipart bodies on their way in."""
