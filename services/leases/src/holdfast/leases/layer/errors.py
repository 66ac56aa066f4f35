"""What acquire, keepalive and release refuse beyond the lease check itself."""

from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.claim import KeyRefusal


class Waiting(KeyRefusal):
    """Somebody else holds the lease, and the caller's time to wait is over."""

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
