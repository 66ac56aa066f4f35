"""Queries: pages of the documents that match a selector, by index or scan."""
