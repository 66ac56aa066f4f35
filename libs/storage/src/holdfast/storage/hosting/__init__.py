"""A store as the part of a running process: opened for its app, watched, and told about."""
