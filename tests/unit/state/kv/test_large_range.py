"""A range over more keys than a page is read in pages, and answers as one that is read at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.state.layer.kv import rules
from holdfast.state.layer.kv.large_range import read_large
from holdfast.state.layer.kv.operation import (
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RangeResult,
    SortOrder,
    SortTarget,
    TxnRequest,
)
from holdfast.state.layer.kv.service import KvService
from holdfast.state.layer.kv.space import Space
from holdfast.state.protocol.etcd.identity import Identity
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter
from holdfast.storage.opening import open_store
from holdfast.storage.port import Store

KEYS = 2_500
ALL = RangeRequest(b"k", b"l")
FORMS = [
    ALL,
    ALL._replace(limit=7),
    ALL._replace(limit=KEYS - 1, keys_only=True),
    ALL._replace(count_only=True),
    ALL._replace(sort_order=SortOrder.DESCEND, limit=5),
    ALL._replace(sort_target=SortTarget.VALUE, limit=9),
    ALL._replace(sort_target=SortTarget.MOD, sort_order=SortOrder.DESCEND, keys_only=True, limit=9),
    ALL._replace(min_mod_revision=20, limit=3),
    ALL._replace(min_create_revision=5, max_mod_revision=15),
    ALL._replace(revision=30),
    ALL._replace(revision=12, limit=100),
]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store("mem://") as opened:
        yield opened


@pytest.fixture
async def keys(store: Store) -> AsyncIterator[KvService]:
    """So many keys in some revisions, a few of them changed, deleted, or with a value that is not small."""
    service = KvService(store, store.clock)
    async with service.running():
        for first in range(0, KEYS, 100):
            puts = [
                PutRequest(b"k%05d" % number, b"%d" % (number % 7)) for number in range(first, first + 100)
            ]
            await service.txn(TxnRequest(success=tuple(puts)))
        for number in range(0, KEYS, 97):
            await service.put(PutRequest(b"k%05d" % number, b"x" * (number + 1)))
        await service.delete_range(DeleteRangeRequest(b"k00100", b"k00150"))
        yield service


async def at_once(store: Store, request: RangeRequest) -> RangeResult:
    return await store.view(lambda view: rules.range_of(Space(view), request))


@pytest.mark.parametrize("request_", FORMS)
async def test_pages_answer_as_one_read(store: Store, keys: KvService, request_: RangeRequest) -> None:
    assert await read_large(store, request_) == await at_once(store, request_)
    assert await keys.range(request_) == await at_once(store, request_)


async def test_what_changes_during_the_read_is_not_seen(store: Store, keys: KvService) -> None:
    before = await at_once(store, ALL)

    async def change() -> None:
        for number in range(0, KEYS, 50):
            await keys.put(PutRequest(b"k%05d" % number, b"changed"))
            await keys.delete_range(DeleteRangeRequest(b"k%05d" % (number + 1)))
            await keys.put(PutRequest(b"k%05d-new" % number, b"new"))
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    read = await read_large(store, ALL)
    is_still_changing = not changing.done()
    await changing

    assert is_still_changing
    assert read == before


async def test_a_rendering_in_parts_is_the_rendering(store: Store, keys: KvService) -> None:
    answers = AnswerWriter(Identity(1, 2))
    for request in (ALL, ALL._replace(limit=KEYS - 100), ALL._replace(limit=3)):
        result = await keys.range(request)
        assert await answers.rendered_range(result) == answers.range(result)
