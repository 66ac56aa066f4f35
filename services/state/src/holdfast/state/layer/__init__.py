"""The layer of state: documents, attachments, index and queries, without HTTP."""
