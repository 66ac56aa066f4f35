"""Decisions that the coordinator brings from another process: leases end last, when all that they guard is done."""

from collections.abc import Sequence

from holdfast.leases.service import LeaseService
from holdfast.storage.layers import STAGES
from holdfast.storage.port import Store, Transaction
from holdfast.storage.resource import Decision, Member


class BroughtDecisions:
    """Each is one storage transaction of this process."""

    def __init__(self, store: Store, leases: LeaseService) -> None:
        self._store = store
        self._leases = leases

    async def apply(self, txn_id: str, decision: Decision, members: Sequence[Member]) -> bool:
        """False: its holder staged more since state applied the decision, so that has to be done again first."""

        def apply(tx: Transaction) -> bool:
            for member in members:
                if STAGES.get(tx, txn_id, *member) is not None:
                    return False
            self._leases.apply(tx, txn_id, decision, members)
            return True

        is_done = await self._store.transact(apply)
        if is_done:
            self._leases.freed(members)
        return is_done

    async def keep(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        return await self._store.transact(lambda tx: self._leases.keep(tx, txn_id, expires_at_ms, members))
