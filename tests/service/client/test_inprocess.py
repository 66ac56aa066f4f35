"""The SDK against the real plane, inside one event loop."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.client import (
    AlreadyExists,
    AsyncClient,
    CasMismatch,
    LeaseHeld,
    LeaseLost,
    RequestRefused,
    State,
)
from holdfast.client.aio.session import Session
from holdfast.client.testing import inprocess

WAIT_S = 20.0


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with inprocess(qrf_disabled=True) as connected:
        yield connected


async def test_what_a_block_stages_is_its_own_until_it_ends(client: AsyncClient) -> None:
    async with client.acquire("orders", owner="worker-1") as session:
        before = await session.load()
        await session.save({"status": "new"})
        mine, public = await session.load(), await client.load("orders")
        described = await session.describe()
    after = await client.get("orders")

    assert (before, mine, public) == (None, {"status": "new"}, None)
    assert (described.owner, described.version) == ("worker-1", 0)
    assert after is not None
    assert (after.json(), after.version) == ({"status": "new"}, 1)


async def test_version_and_etag_are_followed_through_every_kind_of_write(client: AsyncClient) -> None:
    async with client.acquire("orders") as session:
        await session.save({"n": 1})
        await session.metadata(query_hidden=True)
        await session.save({"n": 2})
    async with client.acquire("orders") as session:
        await session.get()
        removed = await session.remove()
        await session.save({"n": 3})

    assert removed.is_removed
    assert await client.load("orders") == {"n": 3}


async def test_the_server_changes_fields_under_the_same_rules(client: AsyncClient) -> None:
    async with client.acquire("orders") as session:
        await session.mutate(["/n++", "/status=new"])
        changed = await session.mutate(["/n=+2"])
        with pytest.raises(CasMismatch):
            await session.mutate(["/n++"], if_version=7)
        with pytest.raises(RequestRefused) as refused:
            await session.mutate(["no pointer"])

    assert (changed.version, refused.value.code) == (1, "invalid_mutations")
    assert await client.load("orders") == {"n": 3, "status": "new"}


async def test_a_stale_condition_is_refused_with_the_current_version_and_etag(client: AsyncClient) -> None:
    async with client.acquire("orders") as session:
        first = await session.save({"n": 1})
        with pytest.raises(CasMismatch) as by_version:
            await session.update(b"{}", if_version=7)
        with pytest.raises(CasMismatch) as by_etag:
            await session.update(b"{}", if_etag="stale")

    assert (by_version.value.code, by_version.value.current_version) == ("version_conflict", 1)
    assert (by_etag.value.code, by_etag.value.current_etag) == ("etag_mismatch", first.etag)


async def test_a_waiter_gets_the_key_when_it_is_released(client: AsyncClient) -> None:
    first = await client.acquire("orders")
    waiting = asyncio.ensure_future(_acquired(client, "orders"))
    with pytest.raises(LeaseHeld):
        await client.acquire("orders", block_s=0)
    was_waiting = not waiting.done()

    await first.release()
    second = await asyncio.wait_for(waiting, WAIT_S)

    assert was_waiting
    assert second.fencing_token == first.fencing_token + 1
    await second.release()


async def test_a_waiter_that_is_cancelled_is_never_granted(client: AsyncClient) -> None:
    first = await client.acquire("orders")
    waiting = asyncio.ensure_future(_acquired(client, "orders"))
    with pytest.raises(LeaseHeld):
        await client.acquire("orders", block_s=0)

    waiting.cancel()
    await asyncio.wait({waiting}, timeout=WAIT_S)
    await first.release()
    third = await asyncio.wait_for(_acquired(client, "orders"), WAIT_S)

    assert third.fencing_token == first.fencing_token + 1
    await third.release()


async def test_an_expired_holder_is_refused_and_told(client: AsyncClient) -> None:
    paused = await client.acquire("orders", ttl_s=1, keepalive=False)
    await paused.save({"zombie": True})
    async with client.acquire("orders", block_s=WAIT_S) as taker:
        with pytest.raises(LeaseLost):
            await paused.save({"zombie": 2})
        await taker.save({"taker": True})

    assert paused.lost.is_set()
    assert await client.load("orders") == {"taker": True}


async def test_automatic_keepalive_outlasts_the_ttl(client: AsyncClient) -> None:
    async with client.acquire("orders", ttl_s=1) as session:
        with pytest.raises(LeaseHeld):
            await client.acquire("orders", block_s=3)
        await session.save({"still": "mine"})

    assert await client.load("orders") == {"still": "mine"}


async def test_keys_of_one_transaction_are_committed_together(client: AsyncClient) -> None:
    first = await client.acquire("a")
    second = await client.acquire("b", txn_id=first.lease.txn_id)
    await first.save(1)
    await second.save(2)

    await second.release()
    both = await client.load("a"), await client.load("b")
    await first.release()

    assert both == (1, 2)


async def test_create_only_and_generated_keys(client: AsyncClient) -> None:
    async with client.acquire() as session:
        generated = session.key
        with pytest.raises(AlreadyExists):
            await client.acquire(generated, if_not_exists=True)

    assert len(generated) == 36


async def test_what_the_server_does_not_take_is_a_typed_error(client: AsyncClient) -> None:
    with pytest.raises(RequestRefused) as by_key:
        await client.acquire("no spaces allowed")
    with pytest.raises(RequestRefused) as by_namespace:
        await client.get("orders", namespace=".txns")
    async with client.acquire("orders") as session:
        with pytest.raises(RequestRefused) as by_body:
            await session.update(b'{"a":')

    codes = [refused.value.code for refused in (by_key, by_namespace, by_body)]
    assert codes == ["invalid_key", "invalid_namespace", "invalid_body"]
    assert by_key.value.correlation_id


async def test_a_counter_that_many_update_loses_nothing(client: AsyncClient) -> None:
    async def add(session: Session, state: State | None) -> None:
        await session.save((0 if state is None else state.json()) + 1)

    await asyncio.gather(*(client.acquire_for_update("n", add, block_s=WAIT_S) for _ in range(20)))

    assert await client.load("n") == 20


async def test_a_large_document_is_streamed_both_ways(client: AsyncClient) -> None:
    piece = b"x" * 65_536

    async def document() -> AsyncIterator[bytes]:
        yield b'"'
        for _ in range(160):
            yield piece
        yield b'"'

    async with client.acquire("big") as session:
        result = await session.update(document())
    async with client.stream("big") as stream:
        size_bytes = sum([len(chunk) async for chunk in stream])

    assert result.size_bytes == size_bytes == 160 * 65_536 + 2


async def _acquired(client: AsyncClient, key: str) -> Session:
    return await client.acquire(key, block_s=WAIT_S)
