"""`holdfast client`: leases and documents of a running plane, and how commands reach a plane and print its answers."""
