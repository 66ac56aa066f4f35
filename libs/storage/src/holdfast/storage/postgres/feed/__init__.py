"""The change feed of a database: followed, hinted at, and what it keeps up to date."""
