"""Encryption (scheme HF1) and compression of values and blobs, above any backend."""
