"""Client: the Python SDK of the plane."""
