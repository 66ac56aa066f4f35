"""The key space by both twins against a real plane: keys, transactions, leases."""

import asyncio

import pytest

from holdfast.client import (
    AlreadyExists,
    AsyncClient,
    Client,
    Compacted,
    Compare,
    DeleteOp,
    GetOp,
    KvGetResult,
    NotFound,
    PutOp,
    RequestRefused,
    TxnOp,
)
from holdfast.client.kv.operation import KvOp

WAIT_S = 30.0
NEVER = 987_654_321


async def test_a_key_is_put_read_and_deleted(async_client: AsyncClient, prefix: str) -> None:
    kv = async_client.kv
    first = await kv.put(prefix, b"\xff\0")
    second = await kv.put(prefix, "text", prev_kv=True)
    there = (await kv.get(prefix)).first
    deleted = await kv.delete(prefix, prev_kv=True)

    assert first.prev_kv is None
    assert second.prev_kv is not None
    assert second.prev_kv.value == b"\xff\0"
    assert there is not None
    assert (there.key, there.value) == (prefix.encode(), b"text")
    assert (there.create_revision, there.mod_revision, there.version) == (first.revision, second.revision, 2)
    assert (deleted.deleted, deleted.prev_kvs) == (1, (there,))
    assert (await kv.get(prefix)).first is None
    assert (await kv.delete(prefix)).deleted == 0


async def test_ranges_are_read_in_the_order_that_is_asked_for(async_client: AsyncClient, prefix: str) -> None:
    kv = async_client.kv
    for name, value in (("b", "1"), ("a", "2"), ("c", "3")):
        await kv.put(prefix + name, value)

    whole = await kv.get(prefix, prefix=True)
    part = await kv.get(prefix + "a", range_end=prefix + "c")
    some = await kv.get(prefix, prefix=True, limit=1)
    newest = await kv.get(prefix, prefix=True, sort_by="MOD", order="DESCEND", keys_only=True)
    counted = await kv.get(prefix, prefix=True, count_only=True)
    rest = await kv.get(prefix + "b", from_key=True)

    assert names(whole, prefix) == ["a", "b", "c"]
    assert names(part, prefix) == ["a", "b"]
    assert (names(some, prefix), some.more, some.count) == (["a"], True, 3)
    assert names(newest, prefix) == ["c", "a", "b"]
    assert {kv.value for kv in newest.kvs} == {b""}
    assert (counted.kvs, counted.count) == ((), 3)
    assert names(rest, prefix)[:2] == ["b", "c"]


def names(result: KvGetResult, prefix: str) -> list[str]:
    return [kv.key.decode().removeprefix(prefix) for kv in result.kvs]


async def test_the_past_is_read_until_it_is_compacted(async_client: AsyncClient, prefix: str) -> None:
    kv = async_client.kv
    old = (await kv.put(prefix, "old")).revision
    new = (await kv.put(prefix, "new")).revision
    past = (await kv.get(prefix, revision=old)).first

    assert past is not None
    assert past.value == b"old"
    assert await kv.compact(new, physical=True) == new
    with pytest.raises(Compacted):
        await kv.get(prefix, revision=old)
    with pytest.raises(Compacted):
        await kv.compact(new)
    with pytest.raises(RequestRefused, match="future revision"):
        await kv.get(prefix, revision=new + 1000)


async def test_a_put_keeps_what_it_is_told_to_keep(async_client: AsyncClient, prefix: str) -> None:
    kv = async_client.kv
    lease = await kv.leases.grant(60)
    await kv.put(prefix, "value", lease=lease.id)

    await kv.put(prefix, "other", ignore_lease=True)
    kept = (await kv.get(prefix)).first
    await kv.put(prefix, ignore_value=True)
    freed = (await kv.get(prefix)).first

    assert kept is not None
    assert freed is not None
    assert (kept.value, kept.lease) == (b"other", lease.id)
    assert (freed.value, freed.lease) == (b"other", 0)
    with pytest.raises(RequestRefused, match="key not found"):
        await kv.put(prefix + "none", ignore_value=True)


async def test_a_transaction_does_one_thing_or_the_other(async_client: AsyncClient, prefix: str) -> None:
    kv = async_client.kv
    is_new = [Compare.create(prefix, "=", 0)]
    make: list[KvOp] = [PutOp(prefix, "mine"), GetOp(prefix)]
    look: list[KvOp] = [GetOp(prefix), TxnOp([Compare.value(prefix, "=", "mine")], [DeleteOp(prefix)])]

    made = await kv.txn(is_new, make, look)
    again = await kv.txn(is_new, make, look)

    assert made.succeeded
    assert isinstance(made.results[1], KvGetResult)
    assert made.results[1].kvs[0].mod_revision == made.revision
    assert not again.succeeded
    inner = again.results[1]
    assert type(inner).__name__ == "KvTxnResult"
    assert (await kv.get(prefix)).first is None


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (Compare.version("cmp", "=", 2), True),
        (Compare.version("cmp", "!=", 2), False),
        (Compare.value("cmp", "<", "b"), True),
        (Compare.value("cmp", ">", "a"), False),
        (Compare.lease("cmp", "=", 0), True),
        (Compare.mod("cmp", ">", 0), True),
        (Compare.mod("cmp", ">", 0, prefix=True), True),
        (Compare.create("cmp-none", "=", 0), True),
        (Compare.value("cmp-none", "!=", "x"), False),
    ],
)
async def test_what_is_compared(async_client: AsyncClient, compare: Compare, holds: bool) -> None:
    await async_client.kv.delete("cmp")
    await async_client.kv.put("cmp", "x")
    await async_client.kv.put("cmp", "a")

    assert (await async_client.kv.txn([compare])).succeeded is holds


async def test_a_lease_takes_its_keys_along(async_client: AsyncClient, prefix: str) -> None:
    kv = async_client.kv
    lease = await kv.leases.grant(60, NEVER)
    await kv.put(prefix, "x", lease=NEVER)
    with pytest.raises(AlreadyExists):
        await kv.leases.grant(60, NEVER)
    state = await kv.leases.time_to_live(NEVER, keys=True)

    assert (lease.id, lease.ttl_s) == (NEVER, 60)
    assert (state.granted_ttl_s, state.keys) == (60, (prefix.encode(),))
    assert 0 < state.ttl_s <= 60
    assert NEVER in await kv.leases.list()
    assert await kv.leases.keep_alive(NEVER) == 60

    revision = await kv.leases.revoke(NEVER)

    assert (await kv.get(prefix)).first is None
    assert (await kv.get(prefix)).revision >= revision
    assert (await kv.leases.time_to_live(NEVER)).is_over
    with pytest.raises(NotFound):
        await kv.leases.revoke(NEVER)
    with pytest.raises(NotFound):
        await kv.leases.keep_alive(NEVER)


async def test_a_lease_that_is_kept_outlives_its_time(async_client: AsyncClient, prefix: str) -> None:
    kept = await async_client.kv.leases.grant(2)
    left = await async_client.kv.leases.grant(2)
    await async_client.kv.put(prefix + "left", "x", lease=left.id)
    revision = (await async_client.kv.put(prefix + "kept", "x", lease=kept.id)).revision

    async def keep() -> None:
        async for ttl_s in async_client.kv.leases.keep(kept.id):
            assert ttl_s == kept.ttl_s

    keeping = asyncio.ensure_future(keep())
    async with async_client.kv.watch(prefix, prefix=True, start_revision=revision + 1) as watch:
        async with asyncio.timeout(WAIT_S):
            gone = await anext(aiter(watch))
    there = (await async_client.kv.get(prefix + "kept")).first
    await async_client.kv.leases.revoke(kept.id)

    assert (gone.type, gone.kv.key) == ("DELETE", f"{prefix}left".encode())
    assert there is not None
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(NotFound):
            await keeping


def test_the_blocking_twin_does_the_same(client: Client, prefix: str) -> None:
    kv = client.kv
    lease = kv.leases.grant(60)
    kv.put(prefix + "a", "1", lease=lease.id)
    result = kv.txn([Compare.version(prefix + "a", "=", 1)], [PutOp(prefix + "b", "2")])

    assert result.succeeded
    assert names(kv.get(prefix, prefix=True), prefix) == ["a", "b"]
    assert next(iter(kv.leases.keep(lease.id))) == 60
    assert lease.id in kv.leases.list()
    assert kv.leases.time_to_live(lease.id, keys=True).keys == (f"{prefix}a".encode(),)
    kv.leases.revoke(lease.id)
    assert kv.delete(prefix, prefix=True).deleted == 1
    assert kv.compact(result.revision) > result.revision
