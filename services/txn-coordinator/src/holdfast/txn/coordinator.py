"""The coordinator of transactions on one store: one decision, one storage commit, every resource manager in it."""

from collections.abc import Sequence

from holdfast.storage.port import Transaction
from holdfast.storage.resource import Decision, Member, ResourceManager


class Coordinator:
    """The `Decider` of the services in its process.

    All members live in the same store here, so the decision and its effects are the same commit: there is no moment
    at which one is durable and the other is not, and nothing to recover.
    """

    def __init__(self) -> None:
        self._managers: list[ResourceManager] = []

    def enlist(self, manager: ResourceManager) -> None:
        """Have a service take part in every decision. Called while the plane is wired together."""
        self._managers.append(manager)

    async def decide(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]
    ) -> None:
        for manager in self._managers:
            await manager.apply(tx, txn_id, decision, members)

    async def join(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        last_ms = await self.keep(tx, txn_id, expires_at_ms, members)
        if last_ms > expires_at_ms:
            await self.keep(tx, txn_id, last_ms, members)
        return last_ms

    async def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        last_ms = expires_at_ms
        for manager in self._managers:
            last_ms = max(last_ms, await manager.keep(tx, txn_id, expires_at_ms, members))
        return last_ms
