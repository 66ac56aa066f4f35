"""The key space over HTTP, as the JSON gateway of etcd has it."""
