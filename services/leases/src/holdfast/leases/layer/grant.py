"""What acquire asks for, what a holder claims, and what acquire and describe tell."""

from typing import NamedTuple

from holdfast.leases.layer.records import Current
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.records_pb2 import Document
from holdfast.txn.layer.port import Member


class Claim(NamedTuple):
    """What a caller sends to show that it holds a lease; `txn_id` None where it is not asked for."""

    lease_id: str
    fencing_token: int
    txn_id: str | None


class Grant(NamedTuple):
    """A lease as its new holder is told of it."""

    lease_id: str
    txn_id: str
    fencing_token: int
    expires_at_unix: int
    current: Current


class AcquireParams(NamedTuple):
    """What acquire asks for. `wait_s`: None waits for ever, 0 not at all."""

    member: Member
    owner: str
    ttl_s: int
    wait_s: float | None
    txn_id: str = ""
    is_create_only: bool = False


class Description(NamedTuple):
    """A key as any client may see it."""

    lease: Lease | None
    expires_at_unix: int
    document: Document | None
    updated_at_s: int


class Renewal(NamedTuple):
    """One lease that its holder wants to keep for `ttl_s` from now on."""

    member: Member
    claim: Claim
    ttl_s: int
