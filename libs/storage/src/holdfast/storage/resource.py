"""The port between the coordinator of transactions and those who keep what a transaction touches."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from holdfast.storage.port import Transaction


class Decision(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


class Member(NamedTuple):
    """A key that takes part in a transaction."""

    namespace: str
    key: str


class ResourceManager(Protocol):
    """A service that holds a part of what a transaction decides on."""

    async def apply(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]
    ) -> None:
        """Add this service's writes to a storage transaction. Idempotent; what the transaction does not own stays."""
        ...


class Decider(Protocol):
    """What a service asks for when a transaction ends."""

    async def decide(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]
    ) -> None:
        """Let every resource manager add its writes to `tx`: one commit, all or nothing."""
        ...
