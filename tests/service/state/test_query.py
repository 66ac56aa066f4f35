"""Queries beyond the wire: what they hold, when they give up, and what they cost others."""

import asyncio
from contextlib import suppress
from typing import Literal

import pytest

from holdfast.state.layer.errors import QueryUnavailable
from holdfast.state.layer.query import process as query_process
from holdfast.state.layer.query import service as query_service
from holdfast.state.layer.query.engine import Engine
from tests.service.state.indexed_plane import IndexedPlane

EVERYTHING: dict[str, object] = {}


async def test_documents_that_are_not_held_are_read_and_matched_again(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_service, "HELD_BYTES_MAX", 30)
    for key in ("a", "b", "c", "d"):
        await plane.publish(key, {"is_wanted": True})
    page = await plane.page({"eq": {"field": "/is_wanted", "value": True}}, documents=True)
    await plane.publish("b", {"is_wanted": False})
    await plane.remove("c")

    sent = [(key, document.version) async for key, document in plane.query.documents(page)]

    assert [match.document is not None for match in page.matches] == [True, False, False, False]
    assert sent == [("a", 1), ("d", 1)]


@pytest.mark.parametrize("engine", list(Engine))
async def test_a_query_that_finds_nothing_for_long_lets_others_work(
    plane: IndexedPlane, engine: Engine
) -> None:
    for number in range(400):
        await plane.publish(f"k{number:03}", {"n": number}, is_hidden=number % 2 == 0)
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    found = await plane.keys({"not": {"exists": "/n"}}, engine=engine)
    working.cancel()

    assert found == []
    assert turns >= 4


class Turns(asyncio.Semaphore):
    """Tells when a process is about to start."""

    def __init__(self) -> None:
        super().__init__(1)
        self.is_taken = asyncio.Event()

    async def acquire(self) -> Literal[True]:
        self.is_taken.set()
        return await super().acquire()


async def test_a_client_that_hangs_up_ends_its_query_and_its_process(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns()
    monkeypatch.setattr(plane.query, "_processes", turns)
    await plane.publish("large", {"text": "x" * 2_000_000})
    asking = asyncio.create_task(plane.keys({"eq": {"field": "/text", "value": "y"}}))
    await turns.is_taken.wait()

    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking

    assert asking.cancelled()
    assert not turns.locked()


async def test_a_large_document_that_takes_too_long_is_a_refusal(
    plane: IndexedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_process, "TIMEOUT_S", 0.0)
    await plane.publish("large", {"text": "x" * 2_000_000})

    with pytest.raises(QueryUnavailable):
        await plane.keys({"eq": {"field": "/text", "value": "y"}})

    assert await plane.keys(EVERYTHING) == ["large"]


async def test_a_rebuild_tells_how_far_it_is(plane: IndexedPlane) -> None:
    await plane.configure("scan")
    await plane.builder.catch_up()
    await plane.publish("k", {"a": 1})
    await plane.configure("index")

    page = await plane.page({"eq": {"field": "/a", "value": 1}})

    assert [match.key for match in page.matches] == ["k"]
    assert page.metadata["index_phase"] == "building"
    assert page.metadata["index_documents"] == "0"
