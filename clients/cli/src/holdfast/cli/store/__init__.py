"""`holdfast store`: back up, restore, verify, export, import and tend a store."""
