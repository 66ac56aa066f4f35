"""What the queue refuses, with the codes that its clients know."""

from collections.abc import Mapping

from holdfast.common.errors import HoldfastError


class NoMessages(HoldfastError):
    """Nothing is ready, and the caller's time to wait is over."""

    code, status = "waiting", 409


class QueueBusy(HoldfastError):
    """As many consumers wait, or as many messages are out without an ack, as the server lets."""

    code, status = "queue_busy", 503


class MessageNotFound(HoldfastError):
    """There is no such message: acked, dead-lettered, over its TTL, or never there."""

    code, status = "not_found", 404


class MessageLeaseMismatch(HoldfastError):
    """The delivery is no longer this caller's: the message was delivered again, or given back."""

    code, status = "queue_message_lease_mismatch", 409


class MessageLeaseExpired(HoldfastError):
    """The delivery was this caller's, but its visibility time is over."""

    code, status = "lease_expired", 403


class MetadataChanged(HoldfastError):
    """The message, or its state, is not as the caller last saw it. Its holder is told how it is now."""

    code, status = "cas_mismatch", 409

    def __init__(self, detail: str, current_etag: str) -> None:
        super().__init__(detail)
        self.current_etag = current_etag

    def fields(self) -> Mapping[str, str | int]:
        return {"current_etag": self.current_etag}


class StateNotFound(HoldfastError):
    """The message was delivered without its state."""

    code, status = "state_not_found", 404


class InvalidTxn(HoldfastError):
    """The transaction id is no xid, or one call names several of them."""

    code, status = "invalid_txn", 400


class TxnTooLarge(HoldfastError):
    """One transaction sends more bytes than it may."""

    code, status = "txn_too_large", 413


class InvalidPolicy(HoldfastError):
    """A value of a queue's policy is out of its bounds."""

    code, status = "invalid_policy", 400


class BatchTooLarge(HoldfastError):
    """More messages in one call than a call may carry."""

    code, status = "batch_too_large", 413
