"""What is promised of a message, and what becomes of those that nothing was promised of."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.settings import QueueDefaults, Reliability
from holdfast.state.layer.kv.operation import PutRequest
from holdfast.storage.opening import open_store
from holdfast.storage.port import Batch, Store
from tests.service.queue.keys.plane import NODE, OTHER_NODE, Plane, memory_plane, open_plane

EARLY = (Reliability.FEW, Reliability.NONE)


class Gate:
    """Holds back what a commit answers, as a slow device does."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self._commit: Callable[[Batch], Awaitable[int]] = store.commit
        monkeypatch.setattr(store, "commit", self._held)

    async def _held(self, batch: Batch) -> int:
        revision = await self._commit(batch)
        await self.is_open.wait()
        return revision


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with memory_plane() as plane:
        yield plane


def reliable(reliability: Reliability) -> bytes:
    return b'{"reliability":"%b"}' % reliability.encode()


async def is_early(plane: Plane, gate: Gate) -> bool:
    """Whether a put is answered before its commit is."""
    gate.is_open.clear()
    put = asyncio.ensure_future(plane.put(b"/q/q/p/me/m", b"x"))
    early = asyncio.ensure_future(plane.put(b"/q/early/p/me/m", b"x"))
    await early  # Begun after the other one.
    found = put.done()
    gate.is_open.set()
    await put
    await plane.put(b"/plain")  # When this is durable, so is what was answered early.
    return found


@pytest.fixture
async def gate(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Gate:
    await plane.put(b"/q/early", reliable(Reliability.FEW))
    return Gate(plane.store, monkeypatch)


async def test_a_put_is_answered_when_it_is_durable(plane: Plane, gate: Gate) -> None:
    await plane.put(b"/q/q", reliable(Reliability.MAJORITY))

    assert not await is_early(plane, gate)


@pytest.mark.parametrize("reliability", EARLY)
@pytest.mark.parametrize("timeout", [b"0", b"600"])
async def test_with_less_reliability_it_is_answered_before(
    plane: Plane, gate: Gate, reliability: Reliability, timeout: bytes
) -> None:
    """Also if others are told of the commit, as of the moment when a delivery is due."""
    await plane.put(b"/q/q", reliable(reliability))
    await plane.put(b"/q/q", b'{"ack_timeout_s":%b}' % timeout)
    await plane.register(b"q", b"A")

    assert await is_early(plane, gate)

    assert len((await plane.check(b"q")).deliveries) == 1


@pytest.mark.parametrize("way", ["put", "txn", "deleted"])
async def test_a_queue_that_is_made_reliable_is_so_at_once(plane: Plane, gate: Gate, way: str) -> None:
    await plane.put(b"/q/q", reliable(Reliability.FEW))
    assert await is_early(plane, gate)
    await plane.put(b"/q/q/c/A")
    for key in await plane.below(b"/q/q/c/A/0"):
        await plane.delete(key)
    await plane.delete(b"/q/q/c/A")

    if way == "put":
        await plane.put(b"/q/q", reliable(Reliability.MAJORITY))
    elif way == "txn":
        await plane.txn(PutRequest(b"/queue/q", reliable(Reliability.MAJORITY)), PutRequest(b"/plain"))
    else:
        assert await plane.delete(b"/q/q") == 1

    assert not await is_early(plane, gate)


async def test_a_transaction_is_answered_when_it_is_durable(plane: Plane, gate: Gate) -> None:
    gate.is_open.clear()
    txn = asyncio.ensure_future(plane.txn(PutRequest(b"/q/early/p/me/1", b"x")))
    await plane.put(b"/q/early/p/me/2", b"x")

    assert not txn.done()
    gate.is_open.set()
    await txn


async def fill(plane: Plane) -> None:
    for reliability in Reliability:
        queue = reliability.encode()
        await plane.put(b"/q/%b" % queue, reliable(reliability))
        await plane.send(queue, b"a", b"b", b"c")
        await plane.register(queue, b"A")
        assert await plane.delete(b"/q/%b/c/A/%020d/a" % (queue, 1)) == 1


async def test_after_a_restart_there_is_what_was_promised(tmp_path: Path) -> None:
    url = f"disk://{tmp_path}"
    async with open_store(url) as store, open_plane(store) as plane:
        await fill(plane)
    async with open_store(url) as store, open_plane(store) as plane:
        kept = {queue: sorted((await plane.finished(queue.encode())).messages) for queue in Reliability}
        assert kept == {"majority": [2, 3], "few": [2, 3], "none": []}

        await plane.send(b"none", b"d")
        await plane.put(b"/plain")  # When this is durable, so is what was answered early.

        keys = await plane.check(b"none")
        assert sorted(keys.messages) == [4]
        assert keys.deliveries[4].client == b"A"


async def test_a_restart_forgets_more_than_one_commit_could(tmp_path: Path) -> None:
    url = f"disk://{tmp_path}"
    async with open_store(url) as store, open_plane(store) as plane:
        await plane.put(b"/q/q", b'{"reliability":"none","max_in_flight":1000}')
        await plane.register(b"q", b"A")
        await plane.send_together(b"q", [b"%d" % number for number in range(3000)])
    async with open_store(url) as store, open_plane(store) as plane:
        await plane.send(b"q", b"next")
        await plane.put(b"/plain")

        keys = await plane.finished(b"q")

        assert sorted(keys.messages) == [3001]
        assert keys.deliveries[3001].client == b"A"


@asynccontextmanager
async def two_nodes(url: str) -> AsyncIterator[tuple[Plane, Plane]]:
    async with open_store(url) as one, open_store(url) as other:
        async with open_plane(one, node_id=NODE) as here, open_plane(other, node_id=OTHER_NODE) as there:
            await there.put(b"/q/elsewhere", b"")
            yield here, there


async def gone(plane: Plane, node_id: int) -> None:
    """As if the lease of this node had ended."""
    await plane.delete(names.node_key(node_id))


@pytest.mark.parametrize("way", ["put", "ack", "settings", "txn"])
async def test_who_takes_a_queue_over_forgets_what_was_in_the_memory_of_another(
    postgres_url: str, way: str
) -> None:
    async with two_nodes(postgres_url) as (here, there):
        await fill(here)
        await gone(here, NODE)

        for queue in (b"majority", b"few", b"none"):
            if way == "put":
                await there.send(queue, b"d")
            elif way == "ack":
                await there.delete(b"/q/%b/c/A/%020d/b" % (queue, 2))
            elif way == "settings":
                await there.put(b"/q/%b" % queue, b'{"max_in_flight":3,"reliability":"majority"}')
            else:
                await there.txn(PutRequest(b"/q/%b/c/B" % queue, b""), PutRequest(b"/plain", b""))

        found = {queue: await there.finished(queue) for queue in (b"majority", b"few", b"none")}
        assert {keys.host for keys in found.values()} == {b"%d" % OTHER_NODE}
        kept = {"put": [2, 3, 4], "ack": [3]}.get(way, [2, 3])
        assert sorted(found[b"majority"].messages) == sorted(found[b"few"].messages) == kept
        assert sorted(found[b"none"].messages) == ([4] if way == "put" else [])


async def test_a_node_whose_own_key_was_deleted_forgets_nothing_and_comes_back(postgres_url: str) -> None:
    async with two_nodes(postgres_url) as (here, _):
        await fill(here)
        await gone(here, NODE)

        await here.send(b"none", b"d")
        await here.queues.node.renew()

        assert sorted((await here.finished(b"none")).messages) == [2, 3, 4]
        assert await here.below(names.node_key(NODE)) == {names.node_key(NODE): b"%d" % NODE}


async def test_a_node_that_has_not_shown_itself_takes_nothing_over(postgres_url: str) -> None:
    """The end of a lease may be seen to by any process."""
    async with open_store(postgres_url) as one, open_store(postgres_url) as other:
        async with open_plane(one, node_id=NODE) as here, open_plane(other, node_id=OTHER_NODE) as there:
            await fill(here)
            registrations = await here.queues.leases.ids()
            await gone(here, NODE)
            for lease in registrations:
                await there.queues.leases.revoke(lease)

            keys = await there.finished(b"none")
            assert keys.host == b"%d" % NODE
            assert sorted(keys.messages) == [2, 3]


async def test_a_process_that_starts_again_forgets_its_own_in_a_shared_store_too(postgres_url: str) -> None:
    defaults = QueueDefaults(reliability=Reliability.NONE)
    async with open_store(postgres_url) as store:
        async with open_plane(store, node_id=NODE, defaults=defaults) as here:
            await here.send(b"q", b"a")
        async with open_plane(store, node_id=OTHER_NODE, defaults=defaults) as there:
            await there.send(b"r", b"a")
            async with open_plane(store, node_id=NODE, defaults=defaults) as again:
                assert (await again.finished(b"q")).messages == {}
                assert sorted((await again.finished(b"r")).messages) == [1]
