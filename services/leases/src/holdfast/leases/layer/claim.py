"""Whether a caller holds the lease it claims: one check, in the very transaction that acts on it."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.records_pb2 import Document


class Current(NamedTuple):
    """Version and ETag of a key as the caller sees them; they go with most refusals."""

    version: int = 0
    etag: str = ""

    @classmethod
    def of(cls, document: Document | None) -> "Current":
        return cls() if document is None else cls(document.version, document.etag)


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
    """Nobody holds a lease on the key, or somebody else does."""

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


class Claim(NamedTuple):
    """What a caller sends to show that it holds a lease; `txn_id` None where it is not asked for."""

    lease_id: str
    fencing_token: int
    txn_id: str | None


def check_claim(claim: Claim, lease: Lease | None, now_ms: int, current: Current | None = None) -> Lease:
    """The lease, if it is the claimed one and lives; else the refusal, in the order clients rely on."""
    if lease is None or not lease.lease_id or lease.lease_id != claim.lease_id:
        raise LeaseRequired("active lease required", current)
    if lease.expires_at_ms <= now_ms:
        raise LeaseExpired("lease expired", current)
    if lease.fencing_token != claim.fencing_token:
        raise FencingMismatch("fencing token mismatch", current)
    if claim.txn_id is not None and lease.txn_id != claim.txn_id:
        if not claim.txn_id:
            raise MissingTxn("transaction id required", current)
        raise TxnMismatch("transaction mismatch", current)
    return lease
