"""An island of a cluster whose services run on their own: who joins a transaction is enlisted at the leader."""

from functools import partial
from typing import Any

import httpx

from holdfast.common.ids import new_xid
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.txn.layer.records import RECORDS
from tests.infra.gateway import gateway_before, url_of
from tests.infra.split import split_services
from tests.service.txn.tc_node import until


async def leads(client: httpx.AsyncClient) -> bool:
    return "leader_id" in (await client.get("/v1/tc/leader")).json()


async def staged(client: httpx.AsyncClient, key: str, txn_id: str) -> dict[str, Any]:
    asked = {"key": key, "owner": "w", "ttl_seconds": 30, "block_seconds": -1, "txn_id": txn_id}
    lease: dict[str, Any] = (await client.post("/v1/acquire", json=asked)).raise_for_status().json()
    headers = {"X-Lease-ID": lease["lease_id"], "X-Txn-ID": txn_id, "X-Fencing-Token": "1"}
    updated = await client.post("/v1/update", params={"key": key}, json={"n": 1}, headers=headers)
    updated.raise_for_status()
    return lease


async def test_leases_on_their_own_enlist_and_are_decided_under_the_leaders_term(postgres_url: str) -> None:
    txn_id = new_xid()
    async with (
        split_services(postgres_url, is_clustered=True) as peers,
        gateway_before(**peers) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20) as client,
        open_store(postgres_url, StoreOptions()) as store,
    ):
        await until(partial(leads, client))
        lease = await staged(client, "a", txn_id)
        await staged(client, "b", txn_id)
        record = await RECORDS.fetch(store, txn_id)
        released = await client.post(
            "/v1/release",
            json={name: lease[name] for name in ("key", "lease_id", "txn_id")},
            headers={"X-Fencing-Token": "1"},
        )
        read = await client.post("/v1/get", params={"key": "b", "public": "1"})
        without_term = await client.post("/v1/txn/commit", json={"txn_id": txn_id})

    assert record is not None
    assert [one.key for one in record.participants] == ["a", "b"]
    assert record.term > 0
    assert released.json() == {"released": True}
    assert read.json() == {"n": 1}
    assert without_term.json()["error"] == "tc_term_required"
