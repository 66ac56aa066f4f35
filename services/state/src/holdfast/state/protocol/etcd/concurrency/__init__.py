"""etcd's locks and elections: recipes over the key space that it runs for its clients."""
