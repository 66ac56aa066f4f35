"""Storage: one ordered, revisioned key-value store under every service, on several backends."""
