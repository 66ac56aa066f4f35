"""Transactions over two stores: nodes with a store each, one of them leads; all parts follow one decision."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from holdfast.common.ids import new_xid
from tests.service.txn.tc_node import TcNode, until
from tests.service.txn.test_tc_cluster import Cluster
from tests.wire.lockd.queue_wire import MULTIPART, deliveries, message_body

LEADER_TTL = "3s"


class Islands(NamedTuple):
    leader: TcNode
    follower: TcNode

    @property
    def nodes(self) -> tuple[TcNode, TcNode]:
        return self.leader, self.follower


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    await cluster.aclose()


@pytest.fixture
async def islands(cluster: Cluster) -> Islands:
    nodes = [await cluster.start(name, tc_leader_ttl_s=LEADER_TTL) for name in "ab"]
    await until(cluster.agreed_term)
    for node in nodes:
        await until(partial(_knows_both_stores, node))
    leader_url = (await nodes[0].leader())["leader_endpoint"]
    leader = next(node for node in nodes if node.url == leader_url)
    return Islands(leader, next(node for node in nodes if node is not leader))


async def _knows_both_stores(node: TcNode) -> bool:
    return len((await node.get("/v1/tc/rm/list")).json()["backends"]) == 2


async def staged(node: TcNode, key: str, txn_id: str, ttl_s: int = 30) -> dict[str, Any]:
    asked = {"key": key, "owner": "w", "ttl_seconds": ttl_s, "block_seconds": -1, "txn_id": txn_id}
    answer = await node.post("/v1/acquire", asked)
    assert answer.status_code == 200, answer.text
    lease: dict[str, Any] = answer.json()
    updated = await node.post(f"/v1/update?key={key}", {"n": 1}, headers=_claim(lease))
    assert updated.status_code == 200, updated.text
    return lease


async def release(node: TcNode, lease: dict[str, Any], **more: object) -> httpx.Response:
    named = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
    return await node.post("/v1/release", {**named, **more}, headers=_claim(lease))


def _claim(lease: dict[str, Any]) -> dict[str, str]:
    return {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }


async def document(node: TcNode, key: str) -> object:
    answer = await node.post(f"/v1/get?key={key}&public=1")
    return answer.json() if answer.status_code == 200 else None


async def recorded(node: TcNode, txn_id: str) -> str:
    answer = await node.post("/v1/txn/replay", {"txn_id": txn_id}, as_="client")
    return str(answer.json().get("state") or answer.json()["error"])


@pytest.mark.parametrize("releasing", ["leader", "follower"])
async def test_a_release_on_either_island_commits_both(islands: Islands, releasing: str) -> None:
    txn_id = new_xid()
    leases = {"leader": await staged(islands.leader, "a", txn_id)}
    leases["follower"] = await staged(islands.follower, "b", txn_id)

    answer = await release(getattr(islands, releasing), leases[releasing])

    assert answer.status_code == 200, answer.text
    assert (await document(islands.leader, "a"), await document(islands.follower, "b")) == (
        {"n": 1},
        {"n": 1},
    )
    assert [await recorded(node, txn_id) for node in islands.nodes] == ["commit", "commit"]


async def test_a_rollback_on_one_island_rolls_both_back(islands: Islands) -> None:
    txn_id = new_xid()
    await staged(islands.leader, "a", txn_id)
    lease = await staged(islands.follower, "b", txn_id)

    await release(islands.follower, lease, rollback=True)

    assert [await document(islands.leader, "a"), await document(islands.follower, "b")] == [None, None]
    assert [await recorded(node, txn_id) for node in islands.nodes] == ["rollback", "rollback"]


async def test_an_expiry_on_one_island_rolls_both_back(islands: Islands) -> None:
    txn_id = new_xid()
    await staged(islands.leader, "a", txn_id, ttl_s=30)
    await staged(islands.follower, "b", txn_id, ttl_s=1)

    await until(partial(_is_recorded, islands.leader, txn_id, "rollback"))

    assert [await document(islands.leader, "a"), await document(islands.follower, "b")] == [None, None]
    await until(partial(_is_recorded, islands.follower, txn_id, "rollback"))


async def test_a_decision_asked_of_a_follower_is_the_leaders(islands: Islands) -> None:
    txn_id = new_xid()
    await staged(islands.leader, "a", txn_id)
    await staged(islands.follower, "b", txn_id)

    answer = await islands.follower.post(
        "/v1/txn/decide", {"txn_id": txn_id, "state": "commit"}, as_="client"
    )

    assert answer.json() == {"txn_id": txn_id, "state": "commit"}
    assert (await document(islands.leader, "a"), await document(islands.follower, "b")) == (
        {"n": 1},
        {"n": 1},
    )


async def send(node: TcNode, txn_id: str) -> httpx.Response:
    body = message_body(b"follows", queue="orders", txn_id=txn_id)
    return await node.post("/v1/queue/enqueue", body, headers=MULTIPART)


async def taken(node: TcNode) -> list[bytes]:
    answer = await node.post("/v1/queue/dequeue", {"queue": "orders", "owner": "w", "wait_seconds": -1})
    if answer.status_code == 409:
        return []
    return [one.payload for one in deliveries(answer.headers["content-type"], answer.content)]


@pytest.mark.parametrize("sending", ["leader", "follower"])
@pytest.mark.parametrize("is_rollback", [False, True])
async def test_a_message_follows_the_decision_of_the_other_island(
    islands: Islands, sending: str, is_rollback: bool
) -> None:
    txn_id = new_xid()
    sender: TcNode = getattr(islands, sending)
    holder = next(node for node in islands.nodes if node is not sender)
    lease = await staged(holder, "a", txn_id)
    sent = await send(sender, txn_id)
    assert sent.status_code == 200, sent.text
    assert await taken(sender) == []

    answer = await release(holder, lease, rollback=is_rollback)

    assert answer.status_code == 200, answer.text
    assert await document(holder, "a") == (None if is_rollback else {"n": 1})
    assert await taken(sender) == ([] if is_rollback else [b"follows"])
    late = await send(sender, txn_id)
    assert (late.status_code, late.json()["error"]) == (409, "txn_conflict")


async def test_a_message_lives_as_long_as_the_lease_on_the_other_island(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The sending island holds nothing: its record is due after the default TTL, and the leader is asked."""
    nodes = [await cluster.start(name, tc_leader_ttl_s=LEADER_TTL, ttl_s_default=2) for name in "ab"]
    await until(cluster.agreed_term)
    for node in nodes:
        await until(partial(_knows_both_stores, node))
    leader_url = (await nodes[0].leader())["leader_endpoint"]
    leader, follower = sorted(nodes, key=lambda node: node.url != leader_url)
    txn_id = new_xid()
    lease = await staged(leader, "a", txn_id, ttl_s=60)
    assert (await send(follower, txn_id)).status_code == 200
    await asyncio.sleep(6)  # The time itself is what is tested: longer than the TTL and its slack.

    await release(leader, lease)

    assert await document(leader, "a") == {"n": 1}
    assert await taken(follower) == [b"follows"]


async def test_an_island_that_is_down_is_told_when_it_is_back(cluster: Cluster, tmp_path: Path) -> None:
    store = {"store": f"disk://{tmp_path}/store", "tc_leader_ttl_s": LEADER_TTL, "tc_fanout_attempts": 1}
    leader = await cluster.start("a", **{**store, "store": "mem://"})
    await until(cluster.agreed_term)
    follower = await cluster.start("b", **store)
    await until(cluster.agreed_term)
    await until(partial(_knows_both_stores, leader))
    txn_id = new_xid()
    lease = await staged(leader, "a", txn_id, ttl_s=60)
    await staged(follower, "b", txn_id, ttl_s=60)
    await cluster.stop("b")
    await until(cluster.agreed_term)

    answer = await release(leader, lease)
    back = await cluster.start("b", **store)

    assert (answer.status_code, answer.json()["error"]) == (502, "txn_fanout_failed")
    assert await recorded(leader, txn_id) == "commit"
    assert await document(leader, "a") == {"n": 1}
    await until(partial(_is_recorded, back, txn_id, "commit"))
    assert await document(back, "b") == {"n": 1}


async def test_a_decision_without_the_term_of_the_leader_is_refused(islands: Islands) -> None:
    body = {"txn_id": new_xid(), "participants": [{"namespace": "default", "key": "a"}]}

    without = await islands.leader.post("/v1/txn/commit", body, as_="client")
    stale = await islands.leader.post("/v1/txn/commit", {**body, "tc_term": 999}, as_="client")

    assert (without.status_code, without.json()["error"]) == (400, "tc_term_required")
    assert (stale.status_code, stale.json()["error"]) == (409, "tc_term_stale")
    assert stale.json()["leader_endpoint"] == islands.leader.url


async def _is_recorded(node: TcNode, txn_id: str, state: str) -> bool:
    return await recorded(node, txn_id) == state
