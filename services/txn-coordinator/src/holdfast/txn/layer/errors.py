"""What the coordinator refuses when a transaction is decided, applied or replayed."""

from holdfast.common.errors import HoldfastError


class MissingTxnId(HoldfastError):
    """The request names no transaction."""

    code, status = "missing_txn_id", 400


class InvalidTxnId(HoldfastError):
    """The transaction id is no xid."""

    code, status = "invalid_txn_id", 400


class InvalidState(HoldfastError):
    """A transaction is pending, commit or rollback, nothing else."""

    code, status = "invalid_state", 400


class InvalidBackendHash(HoldfastError):
    """The name of an island is not blank."""

    code, status = "invalid_backend_hash", 400


class TxnNotFound(HoldfastError):
    """Nothing is known of the transaction: never heard of, or forgotten after its time."""

    code, status = "txn_not_found", 404


class TxnPending(HoldfastError):
    """The transaction is not decided yet."""

    code, status = "txn_pending", 409


class TxnConflict(HoldfastError):
    """The other decision is recorded already, under a term."""

    code, status = "txn_conflict", 409


class TxnBackendMismatch(HoldfastError):
    """The decision was meant for another island."""

    code, status = "txn_backend_mismatch", 409


class TxnFanoutFailed(HoldfastError):
    """The decision is recorded, but did not reach every participant yet; it is tried again."""

    code, status = "txn_fanout_failed", 502
