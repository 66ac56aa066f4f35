"""The port between the coordinator of transactions and the layers that take part in them."""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.storage.port import Transaction

if TYPE_CHECKING:  # What a lease's holder claims names its key as a Member.
    from holdfast.leases.layer.grant import Claim
    from holdfast.leases.layer.rules import Ids

MEMBERS_MAX = 1000  # A decision on all of them has to fit into one batch, and its members into one page.


class Decision(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


class Member(NamedTuple):
    """A key that takes part in a transaction."""

    namespace: str
    key: str


class TooManyParticipants(HoldfastError):
    """More participants than one transaction may have."""

    code, status = "too_many_participants", 413


def check_room(members: Sequence[Member], joining: int = 1) -> None:
    """Refuse to let so many others join these."""
    if len(members) + joining > MEMBERS_MAX:
        raise TooManyParticipants(f"a transaction has at most {MEMBERS_MAX} participants; begin another one")


class LeaseHeld(Exception):
    """Another caller holds the key, until then at least. The rule that asked for it decides what that means."""

    def __init__(self, expires_at_ms: int) -> None:
        super().__init__(f"held until {expires_at_ms}")
        self.expires_at_ms = expires_at_ms


class ResourceManager(Protocol):
    """A layer that holds a part of what a transaction decides on."""

    @property
    def member_prefix(self) -> str:
        """With what the keys of its members begin; empty: any member may be one."""
        ...

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        """The keys that `apply` reads for these members, for a store that fetches them in one round trip."""
        ...

    def apply(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        """Add this service's writes to a storage transaction. Idempotent; what the transaction does not own stays."""
        ...

    def keep(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member], now_ms: int
    ) -> int:
        """Its members belong together from now on and live until then at least; returns when the last of them ends."""
        ...


class Decider(Protocol):
    """What a layer asks for when a transaction begins or ends."""

    def mint(self) -> str:
        """An id for a transaction of one lease or delivery. This store knows it again, so that nothing joins after its end."""
        ...

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        """The keys that a decision on these members reads."""
        ...

    def decide(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        """Let every resource manager add its writes to `tx`, and record the decision: one commit, all or nothing."""
        ...

    def end(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        """The same for a lease that belongs to no transaction of several: no client can ask for its outcome,
        so nothing is recorded."""
        ...

    def abandon(
        self, tx: Transaction, txn_id: str, members: Sequence[Member], now_ms: int
    ) -> Callable[[], Awaitable[None]] | None:
        """Roll back, for a member that has left the transaction; what is returned is to be awaited after the commit.

        If that never happens, time does the same.
        """
        ...

    def decided(self, tx: Transaction, txn_id: str) -> Decision | None:
        """How a transaction ended, as long as that is remembered."""
        ...

    def join(
        self,
        tx: Transaction,
        txn_id: str,
        expires_at_ms: int,
        members: Sequence[Member],
        joining: Member,
        now_ms: int,
    ) -> int:
        """A member joins these: all of them live as long as the last one ends, because a transaction must not
        lose one member and keep another; returns when that is."""
        ...

    def admit(self, tx: Transaction, txn_id: str, joining: Sequence[Member], now_ms: int) -> None:
        """These join without a lease of their own: they live as long as their transaction, and prolong none of the
        leases in it. One that holds no lease ends after the default TTL. TxnConflict if it is decided or its time is over,
        and if its id was minted here for a lease or a delivery that has ended."""
        ...

    def keep(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member], now_ms: int
    ) -> int:
        """Let these members live until then at least; returns when the last of them ends."""
        ...


class Leaser(Protocol):
    """Who leases keys, as a service sees it that hands out a key together with something of its own."""

    def grant(
        self,
        tx: Transaction,
        member: Member,
        owner: str,
        ids: "Ids",
        expires_at_ms: int,
        now_ms: int,
        *,
        is_explicit: bool,
    ) -> Lease:
        """An ordinary lease, on the state of a message that is there. LeaseHeld if another caller has it."""
        ...

    def extend(
        self, tx: Transaction, member: Member, claim: "Claim", expires_at_ms: int, now_ms: int
    ) -> None:
        """Let the lease end then; refused as keepalive refuses."""
        ...

    def forget(self, tx: Transaction, member: Member) -> None:
        """The key goes with the message whose state it was; a later key of that name begins above its token."""
        ...

    def freed(self, members: Sequence[Member]) -> None:
        """A decision that another layer asked for was committed: the waiters for these keys may try."""
        ...


class MessageStates(Protocol):
    """Who keeps documents, as a service sees it that owns some of them."""

    def open_message_state(self, tx: Transaction, member: Member) -> None:
        """A document without content that queries do not show, unless there is one already."""
        ...

    def forget_message_state(self, tx: Transaction, member: Member, txn_id: str, now_ms: int) -> None:
        """The document goes, and all that belongs to it or is staged for it under this transaction."""
        ...
