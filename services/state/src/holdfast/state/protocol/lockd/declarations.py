"""What the documentation of several endpoints says in the same words."""

from typing import Final

from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Admission, Begins, Group
from holdfast.common.fields import (
    InvalidFencingToken,
    InvalidKey,
    InvalidNamespace,
    MissingFencingToken,
    MissingKey,
    MissingLease,
)
from holdfast.common.role import Role
from holdfast.leases.layer.errors import FencingMismatch, LeaseExpired, LeaseRequired, MissingTxn, TxnMismatch
from holdfast.state.layer.errors import EtagMismatch, InvalidVersion, VersionConflict

QUERY: Final = {"key": "The key.", "namespace": "Its namespace."}
PUBLIC: Final = {"public": "1: what is committed, without a lease."}
CLAIM: Final = {
    "X-Lease-ID": "The lease, from acquire.",
    "X-Txn-ID": "Its transaction, from acquire.",
    "X-Fencing-Token": "Its fencing token, from acquire.",
}
IF: Final = {
    "X-If-Version": "Write only if this is the version.",
    "X-If-State-ETag": "Write only if this is the document's ETag.",
}
IF_NONE_MATCH: Final = {
    "If-None-Match": "ETags that the caller has: if one is the document's, or it is *, the answer is 304."
}
HIDDEN: Final = {"X-Lockd-Meta-Query-Hidden": "Hide the key from queries, or show it again."}
VERSION: Final = {"X-Key-Version": "The version as this caller sees it."}
TOKEN: Final = {"X-Fencing-Token": "The fencing token of the lease."}
BAD_NAMES: Final = (InvalidNamespace, InvalidKey, MissingKey)
BAD_CLAIM: Final = (MissingLease, MissingTxn, MissingFencingToken, InvalidFencingToken)
NO_LEASE: Final = (LeaseRequired, LeaseExpired, FencingMismatch, TxnMismatch)
CAS: Final = (InvalidVersion, VersionConflict, EtagMismatch)

WRITES: Final = Admission(Group.LOCK)
"""With a lease, whose acquire was admitted."""
READS: Final = Admission(Group.LOCK, Begins.IF_PUBLIC)


def state_router(tag: str, *, admission: Admission | None = None) -> ExpressRouter:
    """For endpoints that are about one key."""
    return ExpressRouter(tags=(tag,), service=Role.STATE, affinity="key", admission=admission)
