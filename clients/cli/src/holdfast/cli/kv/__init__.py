"""`holdfast kv`: keys of a running plane as etcd has them."""
