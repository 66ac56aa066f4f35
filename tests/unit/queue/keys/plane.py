"""A key space with queues over a store that is a dict: every call is one commit, without a loop, at a time that the test sets."""

from collections.abc import Callable
from typing import Final, TypeVar

from holdfast.queue.layer.keys import consumers, names
from holdfast.queue.layer.keys.rules import QUEUE_ITSELF, UNRULED, Context, QueueCommit
from holdfast.queue.layer.keys.settings import QueueDefaults
from holdfast.state.layer.kv import lease_rules, txn
from holdfast.state.layer.kv import rules as kv_rules
from holdfast.state.layer.kv.operation import (
    DeleteRangeRequest,
    DeleteRangeResult,
    KeyValue,
    Operation,
    PutRequest,
    PutResult,
    RangeRequest,
    TxnRequest,
    TxnResult,
)
from holdfast.state.layer.kv.records import LEASES, event_of, log_bounds, read_progress
from holdfast.state.layer.kv.space import Space, SpaceChange
from holdfast.state.layer.kv.writer import Extension, run_one
from holdfast.state.layer.records_pb2 import KvEvent
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction
from holdfast.storage.transact import BufferedTransaction, check_batch
from tests.infra.dict_store import DictStore
from tests.infra.key_queue import Keys, check_queue

T = TypeVar("T")

NODE: Final = 7
OTHER_NODE: Final = 8


class SharedStore(DictStore):
    """What several nodes of a test have in common: the records, the time, and the ids of leases that were given."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.leases_given = 0


class Node:
    """A process over the store."""

    def __init__(
        self,
        store: SharedStore | None = None,
        node_id: int = NODE,
        defaults: QueueDefaults | None = None,
    ) -> None:
        self.store = store or SharedStore()
        self.node_id = node_id
        self.defaults = defaults or QueueDefaults()
        self.due: dict[tuple[bytes, int], int] = {}
        """What it is told to do later."""
        self.largest_batch = 0

    def come(self) -> "Node":
        """Show that it lives, as every process does before it has to do with a queue."""
        key = names.node_key(self.node_id)
        self.run(lambda change: change.put(key, b"%d" % self.node_id, 0, change.get(key)), UNRULED)
        return self

    def go(self) -> None:
        self.run(lambda change: _delete(change, names.node_key(self.node_id)), UNRULED)

    # -- what clients do

    def put(self, key: bytes, value: bytes = b"", lease: int = 0) -> PutResult:
        request = PutRequest(key, value, lease)
        return self.run(lambda change: kv_rules.put(change, request))

    def delete(self, key: bytes, range_end: bytes = b"") -> DeleteRangeResult:
        request = DeleteRangeRequest(key, range_end)
        return self.run(lambda change: kv_rules.delete_range(change, request))

    def delete_below(self, prefix: bytes) -> DeleteRangeResult:
        return self.delete(prefix, names.prefix_end(prefix))

    def txn(self, *operations: Operation) -> TxnResult:
        request = TxnRequest(success=operations)
        txn.check_txn(request)
        return self.run(lambda change: txn.run(change, request))

    def grant(self) -> int:
        return self.store.run(self._grant)

    def revoke(self, lease_id: int) -> None:
        assert self.run(lambda change: lease_rules.revoke(change, lease_id))

    def open_watch(self, queue: bytes, client: bytes, watch: int) -> None:
        who, node = (queue, client), b"%d" % self.node_id
        self.run(
            lambda change: consumers.register(change, who, watch, node),
            self.commit(watch),
        )

    def close_watch(self, queue: bytes, client: bytes, watch: int) -> None:
        self.run(lambda change: consumers.leave(change, (queue, client), watch))

    def kvs(self, prefix: bytes) -> list[KeyValue]:
        request = RangeRequest(prefix, names.prefix_end(prefix))
        return self.store.run(lambda tx: kv_rules.range_of(Space(tx), request)).kvs

    def below(self, prefix: bytes) -> dict[bytes, bytes]:
        return {kv.key: kv.value for kv in self.kvs(prefix)}

    # -- what a process does by itself

    def see_to_due(self) -> None:
        """All that is due, in its order; what a queue has not finished comes first."""
        while True:
            places = [
                (idx != QUEUE_ITSELF, at_ms, queue, idx)
                for (queue, idx), at_ms in self.due.items()
                if at_ms <= self.store.now_ms
            ]
            if not places:
                return
            _, _, queue, idx = min(places)
            self.see_to(queue, idx)

    def finish(self) -> None:
        """Go on with what commits could not do."""
        while places := [queue for queue, idx in self.due if idx == QUEUE_ITSELF]:
            self.see_to(places[0], QUEUE_ITSELF)

    def see_to(self, queue: bytes, idx: int) -> None:
        self.due.pop((queue, idx), None)
        commit = self.commit()
        if idx == QUEUE_ITSELF:
            self.run(lambda change: commit.go_on(change, queue), UNRULED)
        else:
            self.run(lambda change: commit.take_back(change, queue, idx), _GivenAgain(commit, queue))

    def forget(self, queue: bytes) -> None:
        """As a process that starts again."""
        self.run(lambda change: self.commit().forget(change, queue), UNRULED)

    def commit(self, watch: int = 0) -> QueueCommit:
        context = Context(
            self.node_id, self.defaults, self.store.now_ms, self._grant_within, self._on_due, watch
        )
        return QueueCommit(context)

    def run(self, run: Callable[[SpaceChange], T], extension: Extension | None = None) -> T:
        """One commit, within the bounds that every store has."""
        tx = BufferedTransaction(self.store)
        result = run_one(tx, run, extension or self.commit())
        check_batch(tx.batch)
        self.largest_batch = len(tx.batch.puts) + len(tx.batch.deletes) + len(tx.batch.expects)
        self.store.apply(tx)
        for follower in tx.followers:
            follower(self.store.revision)
        return result

    def _grant(self, tx: Transaction) -> int:
        self.store.leases_given += 1
        lease_rules.grant(tx, self.store.leases_given, 60, self.store.now_ms)
        return self.store.leases_given

    def _grant_within(self, tx: Transaction, registration: bytes) -> int:
        return self._grant(tx)

    def _on_due(self, queue: bytes, idx: int, at_ms: int) -> None:
        self.due[queue, idx] = at_ms

    # -- what is kept

    def check(self, queue: bytes, *, is_room_kept: bool = True) -> Keys:
        return self.store.run(lambda tx: check_queue(tx, queue, is_room_kept=is_room_kept))

    def leases(self) -> list[int]:
        rows = self.store.run(lambda tx: LEASES.range(tx, limit=RANGE_LIMIT_MAX))
        return [row.parts[0] for row in rows if isinstance(row.parts[0], int)]

    def log(self, first: int = 0) -> list[KvEvent]:
        """What happened from this revision on, in its order."""
        records = self.store.run(lambda tx: tx.range(*log_bounds(first), limit=RANGE_LIMIT_MAX))
        return [event_of(record.value) for record in records]

    @property
    def revision(self) -> int:
        return self.store.run(lambda tx: read_progress(tx).revision)


class _GivenAgain:
    def __init__(self, commit: QueueCommit, queue: bytes) -> None:
        self._commit = commit
        self._queue = queue

    def complete(self, change: SpaceChange) -> Callable[[SpaceChange], None]:
        return lambda following: self._commit.go_on(following, self._queue)


def _delete(change: SpaceChange, key: bytes) -> None:
    entry = change.get(key)
    if entry is not None:
        change.delete(entry)


def message(queue: bytes, name: bytes, client: bytes = b"p") -> bytes:
    """A producer's key."""
    return b"/queue/%b/producer/%b/%b" % (queue, client, name)
