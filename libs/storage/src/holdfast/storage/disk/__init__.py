"""The embedded store on disk: a synced journal in front of RocksDB, and blobs as files."""
