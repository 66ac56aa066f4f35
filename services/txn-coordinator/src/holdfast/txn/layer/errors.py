"""What the coordinator refuses when a transaction is decided, applied or replayed."""

from collections.abc import Mapping

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


class LeaderRefusal(HoldfastError):
    """Base of the refusals that may name the node that leads instead."""

    code, status = "conflict", 409

    def __init__(self, detail: str, leader_endpoint: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.leader_endpoint = leader_endpoint

    def fields(self) -> Mapping[str, str | int]:
        return {"leader_endpoint": self.leader_endpoint}


class TcTermStale(LeaderRefusal):
    """The term is not the one that counts now."""

    code, status = "tc_term_stale", 409


class TcTermRequired(HoldfastError):
    """A term is needed: this transaction, or this cluster, has one."""

    code, status = "tc_term_required", 400
