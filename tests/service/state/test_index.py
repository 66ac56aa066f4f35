"""The index on every backend: it follows each commit, survives restarts, and never says more than it knows."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.state.layer.index.terms import ENTRIES_MAX, PARTIAL
from holdfast.state.layer.index.writer import WRITES_MAX
from holdfast.state.layer.query.engine import Engine
from holdfast.state.layer.records_pb2 import IndexState
from holdfast.storage.maintenance.transfer import export_lines, import_lines
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Decision
from tests.conformance.backends import SMALL, Backend
from tests.service.state.indexed_plane import NAMESPACE, IndexedPlane
from tests.service.state.query_cases import KEYS, Cases
from tests.service.state.test_index_equals_scan import STEPS, Model, take

OPEN = {"eq": {"field": "/status", "value": "open"}}


def order(status: str, **members: Any) -> dict[str, Any]:
    return {"status": status, **members}


async def phase(plane: IndexedPlane) -> int:
    states = plane.state.index.states
    return (await plane.store.view(lambda view: states.get(view, NAMESPACE))).phase


# -- on every backend


async def test_a_query_sees_every_commit_at_once(everywhere: IndexedPlane) -> None:
    plane = everywhere
    await plane.publish("b", order("open"))
    await plane.publish("a", order("open"))
    both = await plane.keys(OPEN)
    await plane.publish("a", order("closed"))
    one = await plane.keys(OPEN)
    await plane.publish("b", order("closed"), Decision.ROLLBACK)
    still_one = await plane.keys(OPEN)
    await plane.hide("b", True)
    none = await plane.keys(OPEN)
    await plane.hide("b", False)
    shown = await plane.keys(OPEN)
    await plane.remove("b")

    assert (both, one, still_one, none, shown) == (["a", "b"], ["b"], ["b"], [], ["b"])
    assert await plane.keys(OPEN) == []


async def test_random_histories_and_restarts_leave_an_index_that_equals_a_scan(backend: Backend) -> None:
    cases, model = Cases(5), Model()
    for _ in range(4 if backend.is_durable else 1):
        async with backend.open(SMALL) as store:
            plane = IndexedPlane(store)
            await plane.turn_on()
            for _ in range(12):
                step, key, text = cases.choice(STEPS), cases.choice(KEYS), cases.document()
                await take(plane, step, key, text)
                model.apply(step, key, text)
            for _ in range(40):
                selector = cases.selector()
                expected = model.find(selector, int(plane.clock.now_s() * 1e9))
                assert await plane.keys(selector, limit=2) == expected, f"{selector} on {model}"
                assert await plane.keys(selector, engine=Engine.SCAN) == expected


async def test_an_index_that_is_missing_is_made_from_the_documents(backend: Backend) -> None:
    async with backend.open(SMALL) as store:
        plane = IndexedPlane(store)
        await plane.builder.prepare()
        await plane.configure("scan")
        await plane.builder.catch_up()
        for number in range(100):
            await plane.publish(f"k{number:02}", order("open" if number % 10 == 0 else "closed", n=number))
        assert await plane.index_entries() == []

        await plane.configure("index")
        while_building = await plane.keys(OPEN)
        await plane.builder.catch_up()

        assert await phase(plane) == IndexState.READY
        assert await plane.index_entries() != []
        assert while_building == await plane.keys(OPEN) == [f"k{number:02}" for number in range(0, 100, 10)]


async def test_concurrent_writers_and_a_rebuild_leave_an_index_that_equals_a_scan(
    everywhere: IndexedPlane,
) -> None:
    plane = everywhere
    for number in range(60):
        await plane.publish(f"k{number:02}", order("open", n=number))
    await plane.configure("scan")
    await plane.builder.catch_up()

    async def write() -> None:
        for number in range(0, 60, 2):
            await plane.publish(f"k{number:02}", order("closed", n=-number))

    await plane.configure("index")
    await asyncio.gather(write(), plane.builder.catch_up())
    await plane.builder.catch_up()

    assert await phase(plane) == IndexState.READY
    for selector in (OPEN, {"range": {"field": "/n", "lt": 0}}, {"eq": {"field": "/n", "value": 7}}):
        assert await plane.keys(selector) == await plane.keys(selector, engine=Engine.SCAN)


async def test_pages_have_neither_doubles_nor_holes_while_documents_change(everywhere: IndexedPlane) -> None:
    plane = everywhere
    steady = [f"k{number:02}" for number in range(0, 40, 2)]
    for key in steady:
        await plane.publish(key, order("open", n=1))
    is_done = False

    async def churn() -> None:
        turn = 0
        while not is_done:
            turn += 1
            await plane.publish(f"k{turn % 20 * 2 + 1:02}", order("open" if turn % 2 else "closed", n=turn))
            # Matches all the time, in one way or the other.
            await plane.publish(steady[turn % 20], order("open" if turn % 3 else "reopened", n=turn))

    selector = {"in": {"field": "/status", "any": ["open", "reopened"]}}
    churning = asyncio.create_task(churn())
    found = [await plane.keys(selector, limit=3) for _ in range(10)]
    is_done = True
    await churning

    for keys in found:
        assert keys == sorted(set(keys))
        assert set(steady) <= set(keys)


# -- what costs too much


async def test_a_document_with_too_much_to_say_is_found_by_evaluation(plane: IndexedPlane) -> None:
    await plane.publish("wide", {f"f{number}": number for number in range(ENTRIES_MAX + 1)})
    await plane.publish("large", {"f7": 7, "text": "x" * 100_000})
    await plane.publish("small", {"f7": 7})

    found = await plane.keys({"eq": {"field": "/f7", "value": 7}})
    entries = [entry for entry in await plane.index_entries() if PARTIAL in entry]

    assert found == ["large", "small", "wide"]
    assert len(entries) == 2


async def test_a_large_transaction_is_indexed_as_far_as_it_fits(plane: IndexedPlane) -> None:
    wide = {f"f{number}": "x" for number in range(ENTRIES_MAX)}
    claim = await plane.acquire("k00")
    members = {"k00": claim}
    for number in range(1, 20):
        members[f"k{number:02}"] = await plane.acquire(f"k{number:02}", claim.txn_id or "")
    for number, (key, member_claim) in enumerate(members.items()):
        text = json.dumps({**wide, "f0": number}).encode()
        await plane.stage(key, member_claim, text)
    assert len(members) * ENTRIES_MAX > WRITES_MAX

    await plane.release("k00", claim)

    assert await plane.keys({"eq": {"field": "/f0", "value": 3}}) == ["k03"]
    assert await plane.keys({"eq": {"field": "/f0", "value": 19}}) == ["k19"]
    assert await plane.keys({"eq": {"field": "/f1", "value": "x"}}) == sorted(members)
    assert await phase(plane) == IndexState.READY


async def test_a_transaction_that_leaves_too_much_behind_has_the_index_made_again(
    plane: IndexedPlane,
) -> None:
    wide = {f"f{number}": "x" for number in range(ENTRIES_MAX)}
    keys = [f"k{number:02}" for number in range(8)]
    for key in keys:
        await plane.publish(key, wide)
    claim = await plane.acquire(keys[0])
    claims = {key: claim if key == keys[0] else await plane.acquire(key, claim.txn_id or "") for key in keys}
    for key, member_claim in claims.items():
        await plane.stage(key, member_claim, b'{"g":1}')

    await plane.release(keys[0], claim)
    meanwhile = await phase(plane), await plane.keys({"exists": "/f1"}), await plane.keys({"exists": "/g"})
    await plane.builder.catch_up()

    assert meanwhile == (IndexState.CLEARING, [], keys)
    assert (await phase(plane), await plane.keys({"exists": "/f1"}), await plane.keys({"exists": "/g"})) == (
        IndexState.READY,
        [],
        keys,
    )


async def test_many_matches_that_are_not_in_the_order_of_keys_are_scanned(plane: IndexedPlane) -> None:
    for number in range(30):
        await plane.publish(f"k{number:02}", {"list": list(range(number * 100, number * 100 + 100))})
    selector = {"range": {"field": "/list/[]", "gte": 0}}

    assert await plane.keys(selector, limit=7) == [f"k{number:02}" for number in range(30)]


# -- what is written


async def test_an_update_writes_only_what_it_changes(plane: IndexedPlane) -> None:
    await plane.publish("k", order("open", n=1, note="x" * 500))
    before = set(await plane.index_entries())

    await plane.publish("k", order("closed", n=1, note="x" * 500))

    after = set(await plane.index_entries())
    assert (len(before - after), len(after - before)) == (1, 1)


async def test_turning_it_off_takes_every_entry_away(everywhere: IndexedPlane) -> None:
    plane = everywhere
    for number in range(5):
        await plane.publish(f"k{number}", order("open", n=number))
    await plane.configure("scan")
    await plane.builder.catch_up()

    await plane.publish("later", order("open"))

    assert await plane.index_entries() == []
    assert await phase(plane) == IndexState.OFF


async def test_entries_of_another_format_are_made_again(plane: IndexedPlane) -> None:
    await plane.publish("k", order("open"))
    entries = await plane.index_entries()

    def forget(tx: Transaction) -> None:
        plane.state.index.states.put_format(tx, "0")
        tx.delete(entries[0])

    await plane.store.transact(forget)
    lost = await plane.keys(OPEN)
    await plane.builder.prepare()
    marked = await phase(plane), await plane.keys(OPEN)
    await plane.builder.catch_up()

    assert lost == []
    assert marked == (IndexState.CLEARING, ["k"])
    assert (await phase(plane), await plane.index_entries()) == (IndexState.READY, entries)


@pytest.mark.parametrize("backend", ["disk-encrypted"], indirect=True)
async def test_no_value_stands_in_a_key_of_an_encrypted_store(everywhere: IndexedPlane) -> None:
    plane = everywhere
    marker = "the-marker-that-must-not-be-found"
    await plane.publish("k", {"secret": marker, "long": marker * 5, "when": "2026-03-01", "n": 987654321})

    entries = b"".join(await plane.index_entries())
    found = await plane.keys({"eq": {"field": "/secret", "value": marker}})

    assert found == ["k"]
    assert b"/secret" in entries
    assert all(value not in entries for value in (marker.encode(), b"2026-03", b"987654321"))
    assert await plane.keys({"eq": {"field": "/long", "value": marker * 5}}) == ["k"]
    assert await plane.keys({"prefix": {"field": "/secret", "value": "the-"}}) == ["k"]
    assert await plane.keys({"range": {"field": "/n", "gte": 987654321}}) == ["k"]
    assert await plane.keys({"eq": {"field": "/when", "value": "2026-03-01T10:00:00Z"}}) == ["k"]


async def test_an_export_holds_no_entry_and_an_import_is_indexed(plane: IndexedPlane) -> None:
    await plane.publish("k", order("open", secret="not-in-keys"))
    lines = [line async for line in export_lines(plane.store)]

    async with open_memory(StoreOptions()) as store:
        other = IndexedPlane(store)
        await other.turn_on()
        await import_lines(store, [line.encode() for line in lines], overwrite=True)
        await other.builder.prepare()
        await other.builder.catch_up()

        assert not [line for line in lines if '"index' in line]
        assert await other.keys(OPEN) == ["k"]
        assert await other.index_entries() == await plane.index_entries()
