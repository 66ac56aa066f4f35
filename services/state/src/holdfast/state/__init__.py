"""State: JSON documents, their attachments and the index that finds them."""
