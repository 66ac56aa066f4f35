"""The `Decider` of a service that does not live with the coordinator: what it can't do here it asks for, and goes on.

No storage transaction is open while the coordinator is asked: `NeedsCoordinator` ends it first, and the function that wanted
the decision runs again when it was carried out, and finds nothing left to decide.
"""

from collections.abc import Awaitable, Callable, Sequence

from holdfast.common.upstream.port import Upstream
from holdfast.storage.internal_call import call_internal
from holdfast.storage.layers import STAGES
from holdfast.storage.layers_pb2 import TxnMarker, TxnRecord
from holdfast.storage.lifetime import delivery_of, message_place
from holdfast.storage.port import Transaction
from holdfast.storage.resource import Decision, Member, ResourceManager, check_room
from holdfast.storage.tables import Table
from holdfast.storage.transact import NeedsCoordinator

DECIDE_PATH = "/internal/v1/txn/decide"
KEEP_PATH = "/internal/v1/txn/keep"
ENLIST_PATH = "/internal/v1/txn/enlist"
DEADLINE_S = 30.0
KEEP_SLACK_MS = 2000  # Whoever runs again after the answer wants to live until a moment later than before.

_MARKERS = Table("txnmark", TxnMarker)  # Written by txn.
_RECORDS = Table("txn", TxnRecord)  # Written by txn.


class AskCoordinator(NeedsCoordinator):
    """The coordinator has to do its part first: decide, keep members alive elsewhere, or enlist them at the leader."""

    def __init__(
        self, upstream: Upstream, path: str, txn_id: str, members: Sequence[Member], **more: object
    ) -> None:
        super().__init__(f"{path} of {txn_id}")
        self._upstream = upstream
        self._path = path
        self._body: dict[str, object] = {"txn_id": txn_id, "members": member_bodies(members), **more}
        self._affinity = txn_id.encode()

    async def resolve(self) -> None:
        await call_internal(
            self._upstream, self._path, self._body, deadline_s=DEADLINE_S, affinity=self._affinity
        )


class RemoteDecider:
    """Asks the coordinator behind `upstream`. `enlist` those resource managers that live here.

    `is_clustered`: the island is one of several, so its coordinator is told of everybody who joins a transaction.
    """

    def __init__(self, upstream: Upstream, *, owns_messages: bool, is_clustered: bool = False) -> None:
        self._upstream = upstream
        self._is_clustered = is_clustered
        self._owns_messages = owns_messages
        self._managers: list[ResourceManager] = []

    def enlist(self, manager: ResourceManager) -> None:
        self._managers.append(manager)

    def decide(self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        raise self._decision(txn_id, decision, members, is_joint=True)

    def end(self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        """What is staged has to be published or dropped first, by whoever keeps it; the lease ends here."""
        for member in members:
            if STAGES.get(tx, txn_id, *member) is not None:
                raise self._decision(txn_id, decision, members, is_joint=False)
        for manager in self._managers:
            manager.apply(tx, txn_id, decision, members)

    def abandon(
        self, tx: Transaction, txn_id: str, members: Sequence[Member]
    ) -> Callable[[], Awaitable[None]] | None:
        return self._decision(txn_id, Decision.ROLLBACK, members, is_joint=True).resolve

    def decided(self, tx: Transaction, txn_id: str) -> Decision | None:
        marker = _MARKERS.get(tx, txn_id)
        return None if marker is None else Decision(marker.state)

    def join(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member], joining: Member
    ) -> int:
        check_room(members)
        if self._is_clustered and not is_enlisted(_RECORDS.get(tx, txn_id), joining):
            raise self._until(ENLIST_PATH, txn_id, expires_at_ms, [*members, joining])
        last_ms = self.keep(tx, txn_id, expires_at_ms, members)
        if last_ms > expires_at_ms:
            self.keep(tx, txn_id, last_ms, members)
        return last_ms

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        record = _RECORDS.get(tx, txn_id) if self._is_clustered else None
        if record is not None and record.expires_at_ms < expires_at_ms:
            raise self._until(ENLIST_PATH, txn_id, expires_at_ms, members)
        last_ms = expires_at_ms
        for member in [] if self._owns_messages else members:
            place = message_place(member)
            delivery = None if place is None else delivery_of(tx, txn_id, place)
            if delivery is None:
                continue
            if not delivery.is_enlisted or delivery.expires_at_ms < expires_at_ms:
                # Only the queue may write that it belongs to the transaction, or lives longer.
                raise self._until(KEEP_PATH, txn_id, expires_at_ms + KEEP_SLACK_MS, members)
            last_ms = max(last_ms, delivery.expires_at_ms)
        for manager in self._managers:
            last_ms = max(last_ms, manager.keep(tx, txn_id, expires_at_ms, members))
        return last_ms

    def _decision(
        self, txn_id: str, decision: Decision, members: Sequence[Member], *, is_joint: bool
    ) -> AskCoordinator:
        return AskCoordinator(
            self._upstream, DECIDE_PATH, txn_id, members, state=decision.value, is_joint=is_joint
        )

    def _until(self, path: str, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> AskCoordinator:
        return AskCoordinator(self._upstream, path, txn_id, members, expires_at_ms=expires_at_ms)


def is_enlisted(record: TxnRecord | None, member: Member) -> bool:
    return record is not None and any((one.namespace, one.key) == member for one in record.participants)


def member_bodies(members: Sequence[Member]) -> list[dict[str, str]]:
    return [{"namespace": member.namespace, "key": member.key} for member in members]
