"""The walks can fail: each of these faults of the key space is noticed."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from holdfast.state.layer.kv import lease_rules, records, rules, space, txn, writer
from holdfast.state.layer.kv import watch as watch_module
from holdfast.state.layer.kv.errors import KvError, RevisionCompacted
from holdfast.state.layer.kv.lessor import KvLeases
from holdfast.state.layer.kv.operation import (
    Compare,
    DeleteRangeRequest,
    DeleteRangeResult,
    PutRequest,
    PutResult,
)
from holdfast.state.layer.kv.records import PROGRESS, Entry, read_progress
from holdfast.state.layer.kv.space import Space, SpaceChange
from holdfast.state.layer.kv.watch import Change, KvHub, KvWatch
from holdfast.state.layer.records_pb2 import KvEvent, KvProgress
from holdfast.storage.port import Transaction, View
from tests.unit.state.kv import world
from tests.unit.state.kv.play import play
from tests.unit.state.kv.test_machine import SEEDS, STEPS, in_memory

T = TypeVar("T")
TIMEOUT_S = 0.5
"""A watch that loses something is waited for in vain."""


def the_same_value_is_no_change(patch: pytest.MonkeyPatch) -> None:
    genuine = rules.put

    def put(change: SpaceChange, request: PutRequest, **more: Any) -> PutResult:
        before = change.get(request.key)
        if before is None or request.ignore_value or change.value(before) != request.value:
            return genuine(change, request, **more)
        return PutResult(change.revision, change.key_value(before) if request.prev_kv else None)

    patch.setattr(rules, "put", put)


def a_delete_that_finds_nothing_is_a_revision(patch: pytest.MonkeyPatch) -> None:
    genuine = writer.run_one

    def run_one(tx: Transaction, run: Callable[[SpaceChange], T], extension: Any) -> T:
        result = genuine(tx, run, extension)
        if isinstance(result, DeleteRangeResult) and not result.deleted:
            progress = read_progress(tx)
            progress.revision += 1
            tx.put(PROGRESS, progress.SerializeToString())
        return result

    patch.setattr(writer, "run_one", run_one)


def a_deleted_key_goes_on_with_its_version(patch: pytest.MonkeyPatch) -> None:
    gone: dict[bytes, Entry] = {}
    put, delete = SpaceChange.put, SpaceChange.delete

    def remember(change: SpaceChange, entry: Entry) -> None:
        gone[entry.key] = entry
        delete(change, entry)

    def go_on(change: SpaceChange, key: bytes, value: bytes, lease: int, before: Entry | None) -> None:
        put(change, key, value, lease, before or gone.get(key))

    patch.setattr(SpaceChange, "delete", remember)
    patch.setattr(SpaceChange, "put", go_on)


def a_put_tells_itself_as_previous(patch: pytest.MonkeyPatch) -> None:
    genuine = rules.put

    def put(change: SpaceChange, request: PutRequest, **more: Any) -> PutResult:
        result = genuine(change, request, **more)
        entry = change.get(request.key)
        return (
            result
            if result.previous is None or entry is None
            else PutResult(result.revision, change.key_value(entry))
        )

    patch.setattr(rules, "put", put)


def a_watch_tells_the_first_of_a_key_as_previous(patch: pytest.MonkeyPatch) -> None:
    genuine = KvHub._event
    first: dict[bytes, bytes] = {}

    async def event(hub: KvHub, event: KvEvent, revision: int, with_previous: bool) -> Any:
        if event.previous:
            event.previous = first.setdefault(event.key, event.previous)
        return await genuine(hub, event, revision, with_previous)

    patch.setattr(KvHub, "_event", event)


def _history_without(patch: pytest.MonkeyPatch, lose: Callable[[list[Change]], None]) -> None:
    genuine = KvHub.history

    async def history(hub: KvHub, first: int, *, with_previous: bool) -> tuple[list[Change], KvProgress]:
        changes, progress = await genuine(hub, first, with_previous=with_previous)
        lose(changes)
        return changes, progress

    patch.setattr(KvHub, "history", history)


def history_loses_the_first_revision(patch: pytest.MonkeyPatch) -> None:
    def lose(changes: list[Change]) -> None:
        if len(changes) > 1:
            del changes[0]

    _history_without(patch, lose)


def history_loses_the_last_event_of_a_revision(patch: pytest.MonkeyPatch) -> None:
    def lose(changes: list[Change]) -> None:
        for change in changes:
            del change.events[1:]

    _history_without(patch, lose)


def a_watch_goes_live_one_revision_late(patch: pytest.MonkeyPatch) -> None:
    genuine = KvWatch.join

    def join(watch: KvWatch) -> bool:
        was_live = watch._is_live
        if genuine(watch) and not was_live and watch.request.start_revision:
            watch.next_revision += 1
        return watch._is_live

    patch.setattr(KvWatch, "join", join)


def a_watch_is_told_what_it_does_not_want(patch: pytest.MonkeyPatch) -> None:
    genuine = records.is_within

    def is_within(key: bytes, start: bytes, range_end: bytes) -> bool:
        return genuine(key, start, range_end) or bool(range_end and key == range_end)

    patch.setattr(watch_module, "is_within", is_within)


def a_key_outlives_its_lease(patch: pytest.MonkeyPatch) -> None:
    genuine = lease_rules.attached_keys

    def attached_keys(view: View, lease_id: int, *, limit: int | None = None) -> list[bytes]:
        return genuine(view, lease_id, limit=limit)[:2]

    patch.setattr(lease_rules, "attached_keys", attached_keys)


def a_key_ends_with_a_lease_that_it_left(patch: pytest.MonkeyPatch) -> None:
    genuine = SpaceChange.finish

    def finish(change: SpaceChange) -> None:
        change._attached = {one: True for one, is_attached in change._attached.items() if is_attached}
        genuine(change)

    patch.setattr(SpaceChange, "finish", finish)


def a_keepalive_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    async def keep_alive(leases: KvLeases, lease_id: int) -> int:
        return leases._ttls.get(lease_id, 0)

    patch.setattr(KvLeases, "keep_alive", keep_alive)


def one_key_is_enough_for_a_compare_over_a_range(patch: pytest.MonkeyPatch) -> None:
    def holds(found: Space, compare: Compare) -> bool:
        entries: Sequence[Entry | None] = found.find(compare.key, compare.range_end) or [None]
        return any(txn._holds(found, entry, compare) for entry in entries)

    patch.setattr(txn, "holds", holds)


def a_transaction_does_not_see_what_it_deleted(patch: pytest.MonkeyPatch) -> None:
    genuine = SpaceChange.find

    def find(change: SpaceChange, key: bytes, range_end: bytes) -> list[Entry]:
        if range_end and change._latest and None in change._latest.values():
            return Space.find(change, key, range_end)
        return genuine(change, key, range_end)

    patch.setattr(SpaceChange, "find", find)


def the_compacted_revision_is_not_read(patch: pytest.MonkeyPatch) -> None:
    genuine = Space.find_at

    def find_at(found: Space, key: bytes, range_end: bytes, revision: int) -> list[Entry]:
        if revision == found.compacted:
            raise RevisionCompacted
        return genuine(found, key, range_end, revision)

    patch.setattr(space.Space, "find_at", find_at)


def a_range_delete_takes_its_end_along(patch: pytest.MonkeyPatch) -> None:
    genuine = rules.delete_range

    def delete_range(change: SpaceChange, request: DeleteRangeRequest) -> DeleteRangeResult:
        if len(request.range_end) > 1:
            request = request._replace(range_end=request.range_end + b"\0")
        return genuine(change, request)

    patch.setattr(rules, "delete_range", delete_range)


@pytest.mark.parametrize(
    "mutant",
    [
        the_same_value_is_no_change,
        a_delete_that_finds_nothing_is_a_revision,
        a_deleted_key_goes_on_with_its_version,
        a_put_tells_itself_as_previous,
        a_watch_tells_the_first_of_a_key_as_previous,
        history_loses_the_first_revision,
        history_loses_the_last_event_of_a_revision,
        a_watch_goes_live_one_revision_late,
        a_watch_is_told_what_it_does_not_want,
        a_key_outlives_its_lease,
        a_key_ends_with_a_lease_that_it_left,
        a_keepalive_changes_nothing,
        one_key_is_enough_for_a_compare_over_a_range,
        a_transaction_does_not_see_what_it_deleted,
        the_compacted_revision_is_not_read,
        a_range_delete_takes_its_end_along,
    ],
)
async def test_a_key_space_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)
    monkeypatch.setattr(world, "TIMEOUT_S", TIMEOUT_S)

    with pytest.raises((AssertionError, TimeoutError, KvError)):
        for seed in range(SEEDS):
            await play(in_memory().open, seed, STEPS)
