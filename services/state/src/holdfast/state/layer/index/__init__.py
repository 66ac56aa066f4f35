"""The index: terms of documents, written with each publish, and summaries of large documents."""
