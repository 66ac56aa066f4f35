"""The JSON of etcd's gateway: requests in, answers out, without HTTP."""
