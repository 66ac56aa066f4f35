"""Mutations: change documents. Read from text, and applied to bytes."""
