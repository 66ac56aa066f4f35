"""Watches over a store in memory: what each is told, what none pays for, and what becomes of one that is slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.state.layer.watch import watcher as watcher_module
from holdfast.state.layer.watch.hub import EventHub
from holdfast.state.layer.watch.watcher import Change, KeyWatch
from holdfast.storage.errors import Compacted, FutureRevision, StoreClosed, StoreUnavailable
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from holdfast.txn.layer.port import Decision, Member
from tests.infra.document_plane import Plane

ORDERS = Member("default", "orders/1")
OTHER = Member("default", "parts/1")


@pytest.fixture
async def hub(plane: Plane) -> AsyncIterator[EventHub]:
    hub = EventHub(plane.store)
    async with hub.running():
        yield hub


async def told(watch: KeyWatch, count: int = 1) -> list[Change]:
    changes: list[Change] = []
    async with asyncio.timeout(20):
        while len(changes) < count:
            changes += await watch.next()
    return changes


def types_of(changes: list[Change]) -> list[list[str]]:
    return [[event.type.value for event in change.events] for change in changes]


async def publish(plane: Plane, member: Member, text: bytes = b"{}") -> None:
    claim = await plane.acquire(member)
    await plane.update(member, claim, text)
    await plane.release(member, claim)


async def settled() -> None:
    """Everything that is ready to run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_publish_is_told_before_the_lease_that_made_it_ends(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "orders/")

    await publish(plane, ORDERS)

    acquired, published = await told(watch, 2)
    assert types_of([acquired, published]) == [["acquired"], ["put", "released"]]
    assert (published.events[0].version, len(published.events[0].etag)) == (1, 64)
    assert watch.revision == published.revision == plane.store.revision


async def test_others_keys_and_namespaces_are_not_told(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "orders/")
    everything = await hub.watch("default", "")

    for member in (OTHER, Member("other", "orders/1"), Member("default", "orders"), ORDERS):
        await plane.acquire(member)

    assert [change.events[0].key for change in await told(watch)] == ["orders/1"]
    assert [change.events[0].key for change in await told(everything, 3)] == ["parts/1", "orders", "orders/1"]


async def test_a_short_key_is_told_once_where_longer_prefixes_are_watched(
    plane: Plane, hub: EventHub
) -> None:
    async with AsyncExitStack() as stack:
        for prefix in ("or", "orders", "orders/1/2"):
            stack.callback((await hub.watch("default", prefix)).close)
        watch = await hub.watch("default", "orders")
        await plane.acquire(Member("default", "orders"))

        (change,) = await told(watch)
        assert len(change.events) == 1


async def test_renewals_wake_nobody(plane: Plane, hub: EventHub) -> None:
    claim = await plane.acquire(ORDERS)
    watch = await hub.watch("default", "")
    waiting = asyncio.ensure_future(watch.next())
    await settled()

    woken: list[KeyWatch] = []
    wake = KeyWatch.wake

    def note(self: KeyWatch) -> None:
        woken.append(self)
        wake(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyWatch, "wake", note)
        for _ in range(5):
            await plane.leases.keepalive(ORDERS, claim, 60)
        await settled()
        assert (woken, waiting.done()) == ([], False)
        assert watch.revision == plane.store.revision  # And yet it may resume behind them.

    await plane.release(ORDERS, claim)
    assert types_of(await waiting) == [["released"]]


async def test_an_expired_lease_is_told_as_such_however_it_is_found(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "")
    await plane.acquire(ORDERS, ttl_s=5)
    plane.time.advance(6)
    await plane.leases.end_expired(ORDERS)
    late = await plane.acquire(ORDERS, ttl_s=5)
    plane.time.advance(6)
    await plane.acquire(ORDERS)
    await plane.release(ORDERS, late)

    assert types_of(await told(watch, 4)) == [
        ["acquired"],
        ["expired"],
        ["acquired"],
        ["expired", "acquired"],
    ]


async def test_a_release_after_the_end_is_an_expiry(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "")
    claim = await plane.acquire(ORDERS, ttl_s=5)
    await plane.update(ORDERS, claim, b"{}")
    plane.time.advance(6)
    await plane.release(ORDERS, claim)

    assert types_of(await told(watch, 2)) == [["acquired"], ["expired"]]


async def test_a_transaction_is_told_in_one_message(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "")
    first = await plane.acquire(ORDERS)
    second = await plane.acquire(OTHER, first.txn_id or "")
    for member, claim in ((ORDERS, first), (OTHER, second)):
        await plane.update(member, claim, b"{}")
    await plane.release(ORDERS, first)

    *_, published = await told(watch, 3)
    assert [(event.type.value, event.key) for event in published.events] == [
        ("put", "orders/1"),
        ("put", "parts/1"),
        ("released", "orders/1"),
        ("released", "parts/1"),
    ]


async def test_a_rollback_publishes_nothing(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "")
    claim = await plane.acquire(ORDERS)
    await plane.update(ORDERS, claim, b"{}")
    await plane.release(ORDERS, claim, Decision.ROLLBACK)

    assert types_of(await told(watch, 2)) == [["acquired"], ["released"]]


async def test_hidden_documents_do_not_leak(plane: Plane, hub: EventHub) -> None:
    claim = await plane.acquire(ORDERS)
    await plane.update(ORDERS, claim, b"{}", is_hidden=True)
    await plane.release(ORDERS, claim)
    start = plane.store.revision

    live = await hub.watch("default", "")
    await publish(plane, ORDERS, b"[1]")
    claim = await plane.acquire(ORDERS, ttl_s=5)
    plane.time.advance(6)
    await plane.leases.end_expired(ORDERS)
    await plane.acquire(OTHER)

    for watch in (live, await hub.watch("default", "", start)):
        (change,) = await told(watch)
        assert [event.key for event in change.events] == ["parts/1"]


async def test_a_watch_goes_on_after_any_revision(plane: Plane, hub: EventHub) -> None:
    start = plane.store.revision
    live = await hub.watch("default", "orders/")
    for _ in range(3):
        await publish(plane, ORDERS)
        await publish(plane, OTHER)
    whole = [(change.revision, change.events) for change in await told(live, 6)]

    for after in range(start, plane.store.revision + 1):
        watch = await hub.watch("default", "orders/", after)
        wanted = [change for change in whole if change[0] > after]
        assert [(change.revision, change.events) for change in await told(watch, len(wanted))] == wanted
        assert watch.revision == plane.store.revision
        watch.close()


async def test_what_is_compacted_is_refused_with_the_revision_to_go_on(plane: Plane, hub: EventHub) -> None:
    for _ in range(3):
        await publish(plane, ORDERS)
    oldest = await plane.store.compact(plane.store.revision - 2)

    with pytest.raises(Compacted) as caught:
        await hub.watch("default", "", 1)

    assert caught.value.oldest_revision == oldest
    assert len(hub) == 0
    assert len(await told(await hub.watch("default", "", oldest), 1)) == 1


async def test_a_revision_that_is_not_there_yet_is_refused(plane: Plane, hub: EventHub) -> None:
    with pytest.raises(FutureRevision):
        await hub.watch("default", "", plane.store.revision + 1)
    assert len(hub) == 0


async def test_a_slow_watch_goes_on_from_the_history(
    plane: Plane, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "BUFFER_EVENTS_MAX", 4)
    slow, quick = await hub.watch("default", ""), await hub.watch("default", "")
    seen: list[Change] = []
    for _ in range(10):
        await publish(plane, ORDERS)
        seen += await told(quick, 2)

    late = await told(slow, 20)

    assert hub.fallbacks > 0
    assert [(change.revision, change.events) for change in late] == [
        (change.revision, change.events) for change in seen
    ]


async def test_a_slow_watch_whose_past_was_compacted_is_told_so(
    plane: Plane, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "BUFFER_EVENTS_MAX", 2)
    slow = await hub.watch("default", "")
    for _ in range(10):
        await publish(plane, ORDERS)
        await settled()
    await plane.store.compact(plane.store.revision)

    with pytest.raises(Compacted):
        await told(slow)


async def test_a_hub_that_is_too_slow_for_the_store_loses_nothing() -> None:
    async with open_memory(StoreOptions(watch_buffer_events_max=2)) as store:
        plane, hub = Plane(store), EventHub(store)
        async with hub.running():
            watch = await hub.watch("default", "")
            waiting = asyncio.ensure_future(told(watch, 40))
            members = [Member("default", f"k{number}") for number in range(40)]

            await asyncio.gather(*map(plane.acquire, members))

            keys = [event.key for change in await waiting for event in change.events]
    assert sorted(keys) == sorted(member.key for member in members)


async def test_a_thousand_watch_one_key_and_the_store_has_two(plane: Plane, hub: EventHub) -> None:
    before = plane.store.figures()["watches"]
    watches = [await hub.watch("default", "orders/") for _ in range(1000)]
    assert plane.store.figures()["watches"] == before + 2
    waiting = [asyncio.ensure_future(watch.next()) for watch in watches]
    await settled()

    await plane.acquire(ORDERS)
    changes = [await one for one in waiting]

    assert len({id(change) for (change,) in changes}) == 1  # Decoded once, and to be written down once.
    for watch in watches:
        watch.close()
    await settled()
    assert plane.store.figures()["watches"] == before
    assert len(hub) == 0


async def test_a_crowd_that_is_told_lets_others_have_their_turn(plane: Plane, hub: EventHub) -> None:
    order: list[str] = []

    async def follow(watch: KeyWatch) -> None:
        await watch.next()
        order.append("told")

    async def work() -> None:
        for _ in range(50):
            order.append("worked")
            await asyncio.sleep(0)

    crowd = [asyncio.ensure_future(follow(await hub.watch("default", ""))) for _ in range(500)]
    await settled()
    await plane.acquire(ORDERS)
    await asyncio.gather(work(), *crowd)

    first, last = order.index("told"), len(order) - 1 - order[::-1].index("told")
    assert order[first:last].count("worked") >= 5


async def test_a_watch_that_comes_again_at_once_is_told_everything(plane: Plane, hub: EventHub) -> None:
    after = plane.store.revision
    for number in range(5):
        watch = await hub.watch("default", "", after)
        await plane.acquire(Member("default", f"k{number}"))
        (change,) = await told(watch)
        assert change.events[0].key == f"k{number}"
        after = watch.revision
        watch.close()


async def test_a_closed_watch_says_so(hub: EventHub) -> None:
    watch = await hub.watch("default", "")
    waiting = asyncio.ensure_future(watch.next())
    await settled()

    watch.close()
    watch.close()

    with pytest.raises(StoreClosed):
        await waiting


async def test_an_interrupted_hub_tells_what_it_missed(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "")
    waiting = asyncio.ensure_future(told(watch, 2))
    await settled()
    await plane.acquire(ORDERS)
    interrupted = plane.store._hub  # type: ignore[attr-defined]  # pyright: ignore
    interrupted.interrupt(StoreUnavailable("the store was opened again"))
    await plane.acquire(OTHER)

    assert [change.events[0].key for change in await waiting] == ["orders/1", "parts/1"]


async def test_other_commits_cost_no_watcher_anything(plane: Plane, hub: EventHub) -> None:
    watch = await hub.watch("default", "")
    waiting = asyncio.ensure_future(watch.next())
    await settled()

    revision = await plane.store.commit(Batch(puts={b"\x41unrelated\x00": b""}))
    await settled()

    assert (waiting.done(), watch.revision) == (False, revision)
    waiting.cancel()


@asynccontextmanager
async def holding(plane: Plane, member: Member) -> AsyncIterator[Claim]:
    claim = await plane.acquire(member)
    yield claim
    await plane.release(member, claim)


async def test_a_removal_and_a_document_without_content(plane: Plane, hub: EventHub) -> None:
    async with holding(plane, ORDERS) as claim:
        await plane.attach(ORDERS, claim, "a.txt", b"text")
    async with holding(plane, ORDERS) as claim:
        await plane.update(ORDERS, claim, b"{}")
    async with holding(plane, ORDERS) as claim:
        await plane.attach(ORDERS, claim, "b.txt", b"text")
    async with holding(plane, ORDERS) as claim:
        await plane.state.remove(ORDERS, claim, ANYTHING)

    changes = await told(await hub.watch("default", "", 0), 8)

    documents = [
        (event.type.value, event.version)
        for change in changes
        for event in change.events
        if event.type.value in ("put", "delete")
    ]
    assert documents == [("put", 2), ("put", 3), ("delete", 4)]
