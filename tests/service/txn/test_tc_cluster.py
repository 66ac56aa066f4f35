"""Three nodes with a store each: they find each other, agree on a leader, know all stores, and let one go."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.txn.cluster.membership.membership import JoinFailed
from tests.infra.program import free_port
from tests.service.common.certificates import Authority
from tests.service.txn.tc_node import Certificates, TcNode, tc_node, until


class Cluster:
    """Nodes that can be stopped one by one."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority()
        self._folder = folder
        self._stacks: dict[str, AsyncExitStack] = {}
        self.nodes: dict[str, TcNode] = {}

    async def start(self, name: str, **flags: Any) -> TcNode:
        folder = self._folder / name
        stack = self._stacks[name] = AsyncExitStack()
        certificates = Certificates(self._authority, folder, name)
        joining: dict[str, Any] = {"join": [node.url for node in self.nodes.values()], **flags}
        node = await stack.enter_async_context(tc_node(certificates, folder, port=free_port(), **joining))
        self.nodes[name] = node
        return node

    async def announce_dead(self, node: TcNode) -> None:
        """Have it know a member that does not answer."""
        certificates = Certificates(self._authority, self._folder / "dead", "dead")
        body = {"self_endpoint": f"https://127.0.0.1:{free_port()}"}
        async with httpx.AsyncClient(verify=certificates.contexts["server"], trust_env=False) as client:
            (await client.post(f"{node.url}/v1/tc/cluster/announce", json=body)).raise_for_status()

    async def stop(self, name: str) -> None:
        del self.nodes[name]
        await self._stacks.pop(name).aclose()

    async def agreed_term(self) -> int:
        """The term of the leader that all of them follow; 0 if they do not agree."""
        leaders = [await node.leader() for node in self.nodes.values()]
        named = {(leader.get("leader_id"), leader.get("term")) for leader in leaders}
        return int(leaders[0]["term"]) if len(named) == 1 and leaders[0].get("leader_id") else 0

    async def aclose(self) -> None:
        for name in list(self.nodes):
            await self.stop(name)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    await cluster.aclose()


async def test_nodes_that_join_one_after_the_other_all_know_each_other(cluster: Cluster) -> None:
    first, second, third = [await cluster.start(name) for name in "abc"]
    urls = sorted(node.url for node in (first, second, third))

    for node in (first, second, third):
        await until(partial(_is, node.members, urls))
    await until(cluster.agreed_term)

    for node in (first, second, third):
        await until(partial(_is, partial(_backend_urls, node), urls))


async def test_a_node_that_leaves_is_forgotten_and_hands_over_the_lead(cluster: Cluster) -> None:
    nodes = [await cluster.start(name) for name in "abc"]
    await until(cluster.agreed_term)
    term = await cluster.agreed_term()
    leader_url = (await nodes[0].leader())["leader_endpoint"]
    leader = next(node for node in nodes if node.url == leader_url)
    others = [node for node in nodes if node is not leader]
    for node in nodes:
        await until(partial(_is, node.members, sorted(one.url for one in nodes)))

    left = await leader.post("/v1/tc/cluster/leave", {})

    assert left.status_code == 200, left.text
    assert left.json()["endpoints"] == sorted(node.url for node in others)
    for node in others:
        assert await node.members() == sorted(one.url for one in others)
        await until(partial(_is_above, node, term))

    back = await leader.post("/v1/tc/cluster/announce", {"self_endpoint": leader.url})

    assert leader.url in back.json()["endpoints"]
    for node in others:
        await until(partial(_is, node.members, sorted(one.url for one in nodes)))


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_a_change_that_a_member_does_not_hear_of_is_undone(cluster: Cluster, is_express: bool) -> None:
    flags: dict[str, Any] = {"tc_leader_ttl_s": "20s", "is_express": is_express}
    first, second = [await cluster.start(name, **flags) for name in "ab"]
    await until(partial(_has, second.members, first.url))
    before = await _backend_urls(first)
    await cluster.announce_dead(first)

    refused = await first.post("/v1/tc/rm/register", {"backend_hash": "new", "endpoint": "https://n"})
    leaving = await first.post("/v1/tc/cluster/leave", {})

    assert (refused.status_code, refused.json()["error"]) == (502, "tc_rm_replication_failed")
    assert await _backend_urls(first) == before
    assert (leaving.status_code, leaving.json()["error"]) == (503, "tc_cluster_unavailable")
    await until(partial(_has, second.members, first.url))


async def test_a_replica_changes_its_registry_without_asking_anybody(cluster: Cluster) -> None:
    first = await cluster.start("a", tc_leader_ttl_s="20s")
    await cluster.announce_dead(first)

    body = {"backend_hash": "new", "endpoint": "https://n"}
    answer = await first.post("/v1/tc/rm/register", body, headers={"X-Lockd-TC-Replicate": "1"})

    assert (answer.status_code, answer.json()["endpoints"]) == (200, ["https://n"])


async def test_with_a_fixed_quorum_a_member_that_is_silent_still_counts(cluster: Cluster) -> None:
    node = await cluster.start("a", tc_fixed_quorum=2)

    await cluster.announce_dead(node)
    await until(partial(_is, node.members, [node.url]))  # The dead one is forgotten, but not by the quorum.

    assert await node.term() == 0

    await cluster.start("b", tc_fixed_quorum=2)
    await until(cluster.agreed_term)


async def test_a_node_that_is_not_accepted_does_not_start(cluster: Cluster) -> None:
    with pytest.raises(JoinFailed):
        await cluster.start("a", join=[f"https://127.0.0.1:{free_port()}"])


async def _is(ask: Callable[[], Awaitable[object]], expected: object) -> bool:
    return await ask() == expected


async def _has(ask: Callable[[], Awaitable[list[str]]], expected: str) -> bool:
    return expected in await ask()


async def _is_above(node: TcNode, term: int) -> bool:
    return await node.term() > term


async def _backend_urls(node: TcNode) -> list[str]:
    backends = (await node.get("/v1/tc/rm/list")).json()["backends"]
    return sorted(url for backend in backends for url in backend["endpoints"])
