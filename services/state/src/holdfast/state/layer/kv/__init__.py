"""An ordered key space with etcd's rules: revisions, history, transactions, leases and watches."""
