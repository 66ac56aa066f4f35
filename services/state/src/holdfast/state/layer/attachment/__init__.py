"""Attachments: named contents beside a document."""
