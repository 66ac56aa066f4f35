"""Gateway: the one door clients see; it runs or routes to the other services."""
