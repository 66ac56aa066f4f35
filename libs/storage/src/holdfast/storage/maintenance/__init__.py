"""What is done with a whole store: backups, exports, checks, and forgetting what is not used."""
