"""Documents over 64 KiB in the index: found like all others, and not read by queries that they can't match."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.state.layer.index import summarizer as index_summarizer
from holdfast.state.layer.index.summaries import PENDING, SUMMARIES
from holdfast.state.layer.query.engine import Engine
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.port import Transaction
from holdfast.storage.records_pb2 import Payload
from holdfast.txn.layer.port import Decision, Member
from tests.conformance.backends import SMALL, Backend
from tests.service.state.indexed_plane import IndexedPlane

OPEN = {"eq": {"field": "/status", "value": "open"}}
CLOSED = {"eq": {"field": "/status", "value": "closed"}}
ROW = {"eq": {"field": "/rows/[]/id", "value": 1500}}


def large(status: str, rows: int = 6000) -> dict[str, Any]:
    return {"status": status, "rows": [{"id": number} for number in range(rows)]}


def count_reads(plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the large documents that are read from now on."""
    reads: list[str] = []
    open_content = plane.state.open_content

    def opened(member: Member, content: Payload) -> AsyncIterator[bytes]:
        reads.append(member.key)
        return open_content(member, content)

    monkeypatch.setattr(plane.state, "open_content", opened)
    return reads


async def records(plane: IndexedPlane) -> tuple[int, int]:
    """How many summaries there are, and how many are pending."""
    summaries = await SUMMARIES.fetch_range(plane.store, limit=100)
    return len(summaries), len(await PENDING.fetch_range(plane.store, "pending", limit=100))


async def test_a_query_reads_no_large_document_that_it_cannot_match(
    everywhere: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = everywhere
    await plane.publish("large", large("open"))
    await plane.publish("small", {"status": "closed"})
    await plane.builder.catch_up()
    reads = count_reads(plane, monkeypatch)

    closed = await plane.keys(CLOSED)
    missing = await plane.keys({"and": [OPEN, {"exists": "/missing"}]})
    nothing_read = list(reads)
    found = await plane.keys(ROW)

    assert (closed, missing, nothing_read) == (["small"], [], [])
    assert (found, reads) == (["large"], ["large"])


async def test_a_large_document_is_found_before_its_summary_is_there(everywhere: IndexedPlane) -> None:
    plane = everywhere
    await plane.publish("large", large("open"))
    before = await plane.keys(OPEN), await plane.keys(CLOSED), await records(plane)
    await plane.builder.catch_up()
    await plane.publish("large", large("closed"))
    changed = await plane.keys(OPEN), await plane.keys(CLOSED)
    await plane.builder.catch_up()

    assert before == (["large"], [], (0, 1))
    assert changed == ([], ["large"])
    assert (await plane.keys(OPEN), await plane.keys(CLOSED)) == ([], ["large"])
    assert await records(plane) == (1, 0)


@pytest.mark.parametrize("ending", ["remove", "shrink", "hide"])
async def test_a_summary_goes_with_its_document(plane: IndexedPlane, ending: str) -> None:
    await plane.publish("large", large("open"))
    await plane.builder.catch_up()

    match ending:
        case "remove":
            await plane.remove("large")
        case "shrink":
            await plane.publish("large", {"status": "closed"})
        case _:
            await plane.hide("large", True)
    await plane.builder.catch_up()

    assert await records(plane) == (0, 0)
    assert await plane.keys(OPEN) == []


async def test_a_document_that_is_shown_again_gets_its_summary_again(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.publish("large", large("open"), is_hidden=True)
    await plane.hide("large", False)
    await plane.builder.catch_up()
    reads = count_reads(plane, monkeypatch)

    assert await plane.keys(CLOSED) == []
    assert reads == []


async def test_a_rollback_leaves_the_summary_as_it_was(plane: IndexedPlane) -> None:
    await plane.publish("large", large("open"))
    await plane.builder.catch_up()
    await plane.publish("large", large("closed"), Decision.ROLLBACK)

    assert await records(plane) == (1, 0)
    assert (await plane.keys(OPEN), await plane.keys(CLOSED)) == (["large"], [])


async def test_what_a_dead_process_left_pending_is_done_by_the_next(backend: Backend) -> None:
    if not backend.is_durable:
        return
    async with backend.open(SMALL) as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        await plane.publish("large", large("open"))
    async with backend.open(SMALL) as store:
        plane = IndexedPlane(store)
        pending = await records(plane)
        await plane.builder.catch_up()

        assert (pending, await records(plane)) == ((0, 1), (1, 0))
        assert await plane.keys(OPEN) == ["large"]


async def test_the_running_builder_makes_summaries_by_itself(plane: IndexedPlane) -> None:
    async with plane.builder.running():
        await plane.publish("large", large("open"))
        async with plane.store.watch(*SUMMARIES.bounds(), after=0) as changes, asyncio.timeout(60):
            async for _ in changes:
                break

    assert await records(plane) == (1, 0)


async def test_a_rebuilt_index_has_summaries_of_what_is_there(plane: IndexedPlane) -> None:
    await plane.configure("scan")
    await plane.builder.catch_up()
    await plane.publish("large", large("open"))
    without = await records(plane)
    await plane.configure("index")
    await plane.builder.catch_up()

    assert (without, await records(plane)) == ((0, 0), (1, 0))


async def test_a_document_that_no_process_can_read_lets_every_query_through(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plane.builder._summarizer._process, "_command", (sys.executable, "-c", "pass"))
    await plane.publish("large", large("open"))
    await plane.builder.catch_up()

    assert await records(plane) == (1, 0)
    assert (await plane.keys(OPEN), await plane.keys(CLOSED)) == (["large"], [])


async def test_a_document_replaced_while_it_is_read_gets_the_summary_of_its_last_version(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    summaries = plane.state.index.summaries
    put = summaries.put

    async def put_late(member: Member, etag: str, encoded: bytes) -> bool:
        monkeypatch.setattr(summaries, "put", put)
        await plane.publish("large", large("closed"))
        return await put(member, etag, encoded)

    monkeypatch.setattr(summaries, "put", put_late)
    await plane.publish("large", large("open"))
    await plane.builder.catch_up()
    reads = count_reads(plane, monkeypatch)

    assert await records(plane) == (1, 0)
    assert (await plane.keys(OPEN), reads) == ([], [])
    assert await plane.keys(CLOSED) == ["large"]


async def test_scan_and_index_agree_on_large_documents(plane: IndexedPlane) -> None:
    for number in range(4):
        await plane.publish(f"k{number}", json.dumps(large("open" if number % 2 else "closed")).encode())
    await plane.builder.catch_up()

    for selector in (OPEN, CLOSED, ROW, {"range": {"field": "/rows/[]/id", "gt": 5999}}, {"exists": "/rows"}):
        assert await plane.keys(selector) == await plane.keys(selector, engine=Engine.SCAN)


async def test_a_summary_that_was_cut_off_is_none(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is killed while it writes; the next one makes it."""
    process = plane.builder._summarizer._process
    read = process.read
    reads = 0

    async def cut_off(size_bytes: int) -> bytes:
        nonlocal reads
        reads += 1
        return (await read(size_bytes))[: size_bytes // 2 if reads == 1 else None]

    monkeypatch.setattr(process, "read", cut_off)
    monkeypatch.setattr(index_summarizer, "_RETRY_S", 0.01)
    await plane.publish("large", large("open"))
    await plane.builder.catch_up()

    assert reads == 2
    assert (await plane.keys(ROW), await plane.keys(CLOSED)) == (["large"], [])


async def test_a_damaged_summary_lets_every_query_through(plane: IndexedPlane) -> None:
    await plane.publish("large", large("open"))
    await plane.builder.catch_up()
    (row,) = await SUMMARIES.fetch_range(plane.store, limit=2)
    summary = row.message
    summary.content.CopyFrom(Payload(inline=b"\xff" * 100, size_bytes=100))

    def damage(tx: Transaction) -> None:
        SUMMARIES.put(tx, summary, *row.parts)

    await plane.store.transact(damage)

    assert (await plane.keys(ROW), await plane.keys(CLOSED)) == (["large"], [])


async def test_a_summary_is_made_after_a_store_that_was_away(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    summaries = plane.state.index.summaries
    put = summaries.put
    failed = asyncio.Event()

    async def away(member: Member, etag: str, encoded: bytes) -> bool:
        monkeypatch.setattr(summaries, "put", put)
        failed.set()
        raise StoreUnavailable("away")

    monkeypatch.setattr(summaries, "put", away)
    monkeypatch.setattr(index_summarizer, "_RETRY_S", 0.01)
    async with plane.builder.running():
        await plane.publish("large", large("open"))
        await asyncio.wait_for(failed.wait(), 20)
        for _ in range(1000):
            if await records(plane) == (1, 0):
                break
            await asyncio.sleep(0.02)
    assert await records(plane) == (1, 0)


async def test_a_large_document_that_is_overwritten_before_its_turn_is_sent_as_it_is_now(
    plane: IndexedPlane,
) -> None:
    for key in ("a", "b", "c"):
        await plane.publish(key, large("open"))
    page = await plane.page(OPEN, documents=True)
    await plane.publish("b", large("open", rows=7000))
    await plane.publish("c", large("closed"))
    await plane.store.blobs.free(grace_s=0)

    sent = {
        key: b"".join([piece async for piece in plane.query.content("default", key, document)])
        async for key, document in plane.query.documents(page)
    }

    assert {key: len(json.loads(content)["rows"]) for key, content in sent.items()} == {"a": 6000, "b": 7000}
