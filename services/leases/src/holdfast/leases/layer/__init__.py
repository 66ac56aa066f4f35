"""The layer of leases: records, rules and waiting, without HTTP."""
