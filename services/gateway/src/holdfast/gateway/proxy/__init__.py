"""Routes of services in other processes, served by a gateway in front."""
