"""What a coordinator in a cluster leaves to the leader, asked for outside of any storage transaction."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.storage.transact import NeedsCoordinator
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.rules import State


class Led(Protocol):
    """The way to the leader."""

    @property
    def is_clustered(self) -> bool:
        """False: there is no leader, and no need of one."""
        ...

    async def end_with_lease(self, txn_id: str, decision: Decision) -> State: ...

    async def enlist(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> None: ...


class DecidedByLeader(NeedsCoordinator):
    """A transaction of the cluster ends: the leader decides, outside of any storage transaction."""

    def __init__(self, lead: Led, txn_id: str, decision: Decision) -> None:
        super().__init__(f"{decision.value} of {txn_id}")
        self._lead = lead
        self._txn_id = txn_id
        self._decision = decision

    async def resolve(self) -> None:
        await self._lead.end_with_lease(self._txn_id, self._decision)


class EnlistedAtLeader(NeedsCoordinator):
    """A member joins a transaction of the cluster, or lives longer than the leader knows."""

    def __init__(self, lead: Led, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> None:
        super().__init__(f"enlist in {txn_id}")
        self._lead = lead
        self._txn_id = txn_id
        self._expires_at_ms = expires_at_ms
        self._members = members

    async def resolve(self) -> None:
        await self._lead.enlist(self._txn_id, self._expires_at_ms, self._members)
