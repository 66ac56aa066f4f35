"""Leases of keys: many keys on one, a process that ends and begins again, several processes on one store."""

import asyncio
from pathlib import Path

import pytest

from holdfast.state.layer.kv.errors import KvLeaseNotFound
from holdfast.state.layer.kv.lease_rules import REVOKED_KEYS_MAX
from holdfast.state.layer.kv.operation import PutRequest, RangeRequest, TxnRequest, WatchRequest
from holdfast.state.layer.kv.service import KvService
from holdfast.storage.opening import open_store

ALL = RangeRequest(b"k", b"l", count_only=True)


async def attach(service: KvService, lease_id: int, count: int) -> None:
    for first in range(0, count, 100):
        puts = [PutRequest(b"k%05d" % number, b"", lease_id) for number in range(first, first + 100)]
        await service.txn(TxnRequest(success=tuple(puts)))


async def test_a_lease_with_more_keys_than_a_revision_carries_ends_with_all_of_them() -> None:
    count = 2 * REVOKED_KEYS_MAX + 100
    async with open_store("mem://") as store:
        service = KvService(store, store.clock)
        async with service.running():
            lease_id, _ = await service.leases.grant(600)
            await attach(service, lease_id, count)
            before = await service.range(ALL)
            revision = await service.leases.revoke(lease_id)

            assert before.total == count
            assert (await service.range(ALL)).total == 0
            assert revision == before.revision + 3
            with pytest.raises(KvLeaseNotFound):
                await service.leases.revoke(lease_id)


async def test_a_lease_that_is_over_deletes_its_keys_and_watches_see_it() -> None:
    async with open_store("mem://") as store:
        service = KvService(store, store.clock)
        async with service.running():
            watch = await service.watch(WatchRequest(b"k", b"l", no_put=True))
            lease_id, _ = await service.leases.grant(1)
            await attach(service, lease_id, REVOKED_KEYS_MAX + 100)
            deleted = 0
            async with asyncio.timeout(30):
                while deleted < REVOKED_KEYS_MAX + 100:
                    batch = await watch.next()
                    assert all(event.is_delete for event in batch.events)
                    deleted += len(batch.events)
            watch.close()

            assert await service.leases.time_to_live(lease_id) is None
            assert await service.leases.keep_alive(lease_id) == 0
            assert len(service.leases) == 0


async def test_after_a_restart_a_lease_has_its_whole_time_and_its_keys(tmp_path: Path) -> None:
    url = f"disk://{tmp_path}/store"
    async with open_store(url) as store:
        service = KvService(store, store.clock)
        async with service.running():
            lease_id, _ = await service.leases.grant(600)
            await service.put(PutRequest(b"k", b"v", lease_id))
    async with open_store(url) as store:
        service = KvService(store, store.clock)
        async with service.running():
            state = await service.leases.time_to_live(lease_id, with_keys=True)
            await service.leases.revoke(lease_id)

            assert state is not None
            assert (state.granted_ttl_s, state.keys) == (600, [b"k"])
            assert state.ttl_s in (599, 600)
            assert (await service.range(ALL)).total == 0
