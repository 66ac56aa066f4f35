"""Keys as etcd has them: read, changed, watched, and put with leases."""
