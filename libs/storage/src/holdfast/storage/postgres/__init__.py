"""The `postgres://` backend: many processes share one database; a group commit is one database transaction."""
