"""Selectors: choose documents. Read from text, JSON or URL parameters, and asked whether a document matches."""
