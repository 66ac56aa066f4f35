"""etcd's v3 API as its JSON gateway speaks it."""
