"""The layer of transactions: decisions, their application, fan-out and recovery, without HTTP."""
