"""Compactions that end anywhere: what can be read is what was written, and nothing is left of what cannot."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast.state.layer.kv import compaction, records, space
from holdfast.state.layer.kv.errors import RevisionCompacted
from holdfast.state.layer.kv.operation import (
    UNBOUNDED,
    DeleteRangeRequest,
    KeyValue,
    Operation,
    PutRequest,
    RangeRequest,
    TxnRequest,
    WatchRequest,
)
from holdfast.state.layer.kv.records import LOG, VALUES, event_of, record_of, value_keys
from holdfast.state.layer.kv.service import KvService
from holdfast.storage.opening import open_store
from holdfast.storage.port import Store, Transaction

PIECE = 1024
KEYS = [b"a", b"b", b"b\0", b"c", b"\xff"]
SIZES = [
    0,
    3,
    records.INLINE_BYTES_MAX,
    records.INLINE_BYTES_MAX + 1,
    PIECE,
    PIECE + 1,
    3 * PIECE,
    3 * PIECE + 7,
]
ALL = RangeRequest(UNBOUNDED, UNBOUNDED)

Past = dict[int, dict[bytes, KeyValue]]
"""What there was at each revision."""


class Interrupted(Exception):
    """The process ended there."""


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store("mem://") as opened:
        yield opened


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(space, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(compaction, "STEP_RECORDS", 3)


@pytest.mark.parametrize("seed", range(12))
async def test_an_interrupted_compaction_takes_nothing_that_can_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    past: Past = {1: {}}
    compacted = 0
    for _ in range(12):
        async with open_service(store) as service:
            for _ in range(rng.randrange(1, 12)):
                await write(service, rng, past)
            target = rng.randint(compacted + 1, max(past))
            with monkeypatch.context() as patch:
                interrupt(patch, rng.randrange(6))
                with suppress(Interrupted):
                    await service.compact(target, physical=True)
            compacted = target
        async with open_service(store) as service:
            await check(service, past, compacted)
    async with open_service(store) as service:
        await service.put(
            put_into(past.setdefault(max(past) + 1, dict(past[max(past)])), b"a", b"", max(past))
        )
        await service.compact(max(past), physical=True)
        await check(service, past, max(past))
    await check_nothing_is_left(store, max(past))


def open_service(store: Store) -> Any:
    return _Running(KvService(store, store.clock))


class _Running:
    def __init__(self, service: KvService) -> None:
        self._service = service
        self._block = service.running()

    async def __aenter__(self) -> KvService:
        await self._block.__aenter__()
        return self._service

    async def __aexit__(self, *error: Any) -> None:
        await self._block.__aexit__(*error)


def interrupt(patch: pytest.MonkeyPatch, steps: int) -> None:
    """After so many steps; the note of what is forgotten counts as one."""
    done = 0

    def counted(step: Any) -> Any:
        def run(tx: Transaction, *args: Any, **named: Any) -> Any:
            nonlocal done
            if done == steps:
                raise Interrupted
            done += 1
            return step(tx, *args, **named)

        return run

    patch.setattr(compaction, "forget_some", counted(compaction.forget_some))
    patch.setattr(compaction, "note_forgotten", counted(compaction.note_forgotten))


async def write(service: KvService, rng: random.Random, past: Past) -> None:
    """One revision, or none if nothing was there to delete."""
    last = max(past)
    now = dict(past[last])
    revision = last + 1
    chosen = rng.sample(KEYS, rng.randint(1, 3))
    operations: list[Operation] = []
    has_changed = False
    for key in chosen:
        kind = rng.randrange(5)
        if kind == 0:
            operations.append(DeleteRangeRequest(key))
            has_changed |= now.pop(key, None) is not None
            continue
        value = rng.randbytes(rng.choice(SIZES))
        put = put_into(now, key, value, revision)
        has_changed = True
        if kind == 1:  # Put and deleted in one revision: etcd lets nested transactions do that.
            operations += [TxnRequest(success=(put,)), TxnRequest(success=(DeleteRangeRequest(key),))]
            del now[key]
        else:
            operations.append(put)
    result = await service.txn(TxnRequest(success=tuple(operations)))
    if has_changed:
        past[revision] = now
    assert result.revision == max(past)


def put_into(now: dict[bytes, KeyValue], key: bytes, value: bytes, revision: int) -> PutRequest:
    before = now.get(key)
    now[key] = KeyValue(
        key,
        value,
        revision if before is None else before.create_revision,
        revision,
        1 if before is None else before.version + 1,
    )
    return PutRequest(key, value)


async def check(service: KvService, past: Past, compacted: int) -> None:
    for revision, keys in past.items():
        asked = ALL._replace(revision=revision)
        if revision < compacted:
            with pytest.raises(RevisionCompacted):
                await service.range(asked)
            continue
        assert (await service.range(asked)).kvs == [keys[key] for key in sorted(keys)]
        for key in KEYS:
            found = (await service.range(RangeRequest(key, revision=revision))).kvs
            assert found == ([keys[key]] if key in keys else [])
    await check_watch(service, past, max(compacted, 2))


async def check_watch(service: KvService, past: Past, first: int) -> None:
    """The history from the first revision that can be told, each event with what was there before."""
    if first > max(past):
        return
    watch = await service.watch(WatchRequest(UNBOUNDED, UNBOUNDED, start_revision=first, prev_kv=True))
    try:
        state = dict(past[first - 1])
        told = first - 1
        while told < max(past):
            for event in (await watch.next()).events:
                if event.kv.mod_revision != told:
                    assert state == past[told]
                    told += 1
                assert event.kv.mod_revision == told
                assert event.previous == state.get(event.kv.key)
                if event.is_delete:
                    del state[event.kv.key]
                else:
                    state[event.kv.key] = event.kv
        assert state == past[told]
    finally:
        watch.close()


async def test_a_compaction_that_was_interrupted_goes_on_with_the_next_process(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_service(store) as service:
        for number in range(30):
            await service.put(PutRequest(b"k", b"%d" % number * 300))
        revision = await service.revision()
        with monkeypatch.context() as patch, suppress(Interrupted):
            interrupt(patch, 2)
            await service.compact(revision, physical=True)

    async with open_service(store):
        for _ in range(100):
            await asyncio.sleep(0)

    left = await store.range(*LOG.bounds(), limit=2000)
    assert len(left) == 2  # The last change, and the value that it replaced.
    assert (await store.view(records.read_progress)).forgotten == revision


async def check_nothing_is_left(store: Store, compacted: int) -> None:
    needed = set()
    for record in await store.range(*LOG.bounds(), limit=2000):
        event = event_of(record.value)
        if records.revision_of(record.key) >= compacted:
            needed.add(record.key)
            needed.update(value_keys(record_of(event.record)) if event.record else ())
            needed.update(value_keys(record_of(event.previous)) if event.previous else ())
    start, end = records.bounds_of(UNBOUNDED, UNBOUNDED)
    for record in await store.range(start, end, limit=2000):
        needed.update(value_keys(record_of(record.value)))
    found = {
        record.key
        for bounds in (LOG.bounds(), VALUES.bounds())
        for record in await store.range(*bounds, limit=2000)
    }
    assert found - needed == set()
