"""The registry of resource managers."""
