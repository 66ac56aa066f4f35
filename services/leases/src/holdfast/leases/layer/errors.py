"""What is refused to a caller: because it does not hold the lease it claims, and what else acquire, keepalive and
release refuse."""

from collections.abc import Mapping

from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.records import Current


class KeyRefusal(HoldfastError):
    """Base of the refusals that tell the key's current version and ETag."""

    code, status = "conflict", 409

    def __init__(
        self, detail: str, current: Current | None = None, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.current = current or Current()

    def fields(self) -> Mapping[str, str | int]:
        return {"current_version": self.current.version, "current_etag": self.current.etag}


class LeaseRequired(KeyRefusal):
    """The caller holds no lease on the key."""

    code, status = "lease_required", 403


class LeaseExpired(KeyRefusal):
    """The lease was this caller's, but its time is over."""

    code, status = "lease_expired", 403


class FencingMismatch(KeyRefusal):
    """The lease is right, the fencing token is not."""

    code, status = "fencing_mismatch", 403


class MissingTxn(KeyRefusal):
    """The transaction id of the lease was not sent."""

    code, status = "missing_txn", 400


class TxnMismatch(KeyRefusal):
    """The lease belongs to another transaction."""

    code, status = "txn_mismatch", 409


class Waiting(KeyRefusal):
    """Another holder has the lease, and the caller's time to wait is over."""

    code, status = "waiting", 409
    seen_revision = 0  # At which that lease was written last.


class AlreadyExists(KeyRefusal):
    """The key was asked to be new and is not."""

    code, status = "already_exists", 409


class MissingOwner(HoldfastError):
    """Acquire without an owner."""

    code, status = "missing_owner", 400


class InvalidTxn(HoldfastError):
    """The transaction id is no xid."""

    code, status = "invalid_txn", 400


class KeepaliveUnsupported(HoldfastError):
    """The state of a queue message lives with its message; extend that."""

    code, status = "queue_state_keepalive_unsupported", 403


class TooManyWaiters(HoldfastError):
    """More callers wait for this key than the server lets wait."""

    code, status = "throttled", 429


class TooManyRenewals(HoldfastError):
    """More leases in one call than a call may renew."""

    code, status = "too_many_renewals", 400
