"""Messages: their records, the rules of their life, and where they end."""
