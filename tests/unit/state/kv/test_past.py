"""Reads of the past where they are easy to get wrong: within a transaction, of one key, over much history."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.state.layer.kv import large_range, rules, space
from holdfast.state.layer.kv import service as service_module
from holdfast.state.layer.kv.errors import RevisionCompacted, RevisionInFuture
from holdfast.state.layer.kv.operation import (
    UNBOUNDED,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RangeResult,
    TxnRequest,
)
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.space import Space
from holdfast.storage.opening import open_store
from holdfast.storage.port import Store

ALL = RangeRequest(UNBOUNDED, UNBOUNDED)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store("mem://") as opened:
        yield opened


@pytest.fixture
async def keys(store: Store) -> AsyncIterator[KvService]:
    service = KvService(store, store.clock)
    async with service.running():
        yield service


@pytest.mark.parametrize("large", [False, True])
async def test_a_transaction_reads_the_past_without_its_own_changes(keys: KvService, large: bool) -> None:
    first, second = (b"1" * 600, b"2" * 600) if large else (b"1", b"2")
    before = await keys.put(PutRequest(b"k", first))

    result = await keys.txn(
        TxnRequest(
            success=(
                PutRequest(b"k", second),
                PutRequest(b"l", second),
                RangeRequest(b"k", revision=before.revision),
                ALL._replace(revision=before.revision),
            )
        )
    )

    for found in result.results[2:]:
        assert isinstance(found, RangeResult)
        assert [(kv.key, kv.value) for kv in found.kvs] == [(b"k", first)]


async def test_the_revision_that_a_transaction_makes_is_in_its_future(keys: KvService) -> None:
    before = await keys.put(PutRequest(b"k"))
    own = RangeRequest(b"k", revision=before.revision + 1)

    with pytest.raises(RevisionInFuture):
        await keys.txn(TxnRequest(success=(PutRequest(b"k"), own)))


async def test_a_negative_revision_is_now_however_many_keys_there_are(store: Store, keys: KvService) -> None:
    await keys.put(PutRequest(b"k"))
    asked = ALL._replace(revision=-1)

    assert await large_range.read_large(store, asked) == await keys.range(ALL)
    assert await keys.range(asked) == await keys.range(ALL)


async def test_a_compaction_to_zero_is_refused_after_any_other(keys: KvService) -> None:
    revision = (await keys.put(PutRequest(b"k"))).revision
    assert await keys.compact(0) == revision
    await keys.compact(revision)

    with pytest.raises(RevisionCompacted):
        await keys.compact(0)


@pytest.mark.parametrize("key", [b"k", b"gone", b"new"])
async def test_one_key_is_read_far_back(
    store: Store, keys: KvService, monkeypatch: pytest.MonkeyPatch, key: bytes
) -> None:
    for module in (large_range, space):
        monkeypatch.setattr(module, "HISTORY_PAGE", 7)
    await keys.put(PutRequest(b"gone", b"0" * 700))
    revision = (await keys.put(PutRequest(b"k", b"0" * 700))).revision
    await keys.delete_range(DeleteRangeRequest(b"gone"))
    for number in range(20):
        await keys.txn(TxnRequest(success=(PutRequest(b"k", b"%d" % number), PutRequest(b"new"))))
    asked = RangeRequest(key, revision=revision)

    found = await keys.range(asked)

    assert [(kv.key, kv.value) for kv in found.kvs] == ([] if key == b"new" else [(key, b"0" * 700)])
    assert found == await store.view(lambda view: rules.range_of(Space(view), asked))


async def test_much_history_is_not_read_in_one_step(keys: KvService, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (large_range, space):
        monkeypatch.setattr(module, "HISTORY_PAGE", 7)
    revision = (await keys.put(PutRequest(b"k"))).revision
    for _ in range(20):
        await keys.put(PutRequest(b"l"))
    yields = 0
    pause = asyncio.sleep

    async def counted(seconds: float) -> None:
        nonlocal yields
        yields += 1
        await pause(seconds)

    monkeypatch.setattr(asyncio, "sleep", counted)
    await keys.range(RangeRequest(b"other", revision=revision))

    assert yields == 2


async def test_history_ends_whatever_makes_the_revisions(
    keys: KvService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "REVISIONS_KEPT", 5)
    monkeypatch.setattr(service_module, "COMPACT_EVERY", 1)
    puts = tuple([PutRequest(b"k%d" % number) for number in range(20)])
    first = (await keys.txn(TxnRequest(success=puts))).revision
    for number in range(20):
        await keys.delete_range(DeleteRangeRequest(b"k%d" % number))
        await asyncio.sleep(0)  # It is compacted in the background.

    with pytest.raises(RevisionCompacted):
        await keys.range(ALL._replace(revision=first))
