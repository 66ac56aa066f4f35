"""What callers are told when the store behind membership and registry fails, over both protocols."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from holdfast.common.clock import SteadyClock
from holdfast.common.security.tls import server_context
from holdfast.common.serving.app import build_app
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.txn.cluster.election.timing import ElectionTiming
from holdfast.txn.cluster.membership.membership import Membership
from holdfast.txn.cluster.membership.records import MemberTable, Roster
from holdfast.txn.cluster.peers.http import HttpPeers
from holdfast.txn.cluster.registry.records import RmTable
from holdfast.txn.cluster.registry.registry import RmRegistry
from holdfast.txn.protocol.access import TcAccess
from holdfast.txn.protocol.cluster import TcRoutes
from holdfast.txn.protocol.leader_lease import TcLeaseRoutes
from tests.infra.program import free_port
from tests.service.common.certificates import Authority
from tests.service.txn.tc_node import Certificates

REGISTRATION = {"backend_hash": "one", "endpoint": "https://a"}
ANNOUNCEMENT = {"self_endpoint": "https://a"}


class BlindTable(MemberTable):
    """Can be written but not read, once told so."""

    is_blind = False

    async def roster(self, now_ms: int) -> Roster:
        if self.is_blind:
            raise StoreUnavailable("the store went away")
        return await super().roster(now_ms)


class Endpoints:
    """The routes over a store that fails as a test wants it."""

    def __init__(self, table: BlindTable, stack: AsyncExitStack, client: httpx.AsyncClient) -> None:
        self.table = table
        self._store_stack = stack
        self._client = client

    async def close_store(self) -> None:
        await self._store_stack.aclose()

    async def refusal(self, path: str, body: object = None) -> tuple[int, str]:
        answer = await self._client.request("GET" if body is None else "POST", f"/v1/tc/{path}", json=body)
        return answer.status_code, answer.json().get("error", "")


@pytest.fixture(params=["lane", "asgi"])
async def endpoints(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Endpoints]:
    certificates = Certificates(Authority(), tmp_path, "a")
    clock = SteadyClock()
    routes = TcRoutes()
    url = f"https://127.0.0.1:{free_port()}"
    listener = Listener(url.removeprefix("https://"), tls=server_context(certificates.bundle))
    options = ServeOptions(is_express=request.param == "lane", drain_grace_s=0)
    async with AsyncExitStack() as stack:
        store_stack = await stack.enter_async_context(AsyncExitStack())
        store = await store_stack.enter_async_context(open_memory(StoreOptions()))
        table = BlindTable(store, ttl_ms=1000, keeps_all=False)
        membership = Membership(
            table,
            HttpPeers({}),
            identity="",
            endpoint="",
            seeds=(),
            timing=ElectionTiming(),
            now_ms=clock.now_ms,
            set_peers=lambda peers, quorum: None,
        )
        routes.open(membership, RmRegistry(RmTable(store), HttpPeers({}), lambda: [], clock.now_ms))
        app = build_app("txn", express_routers=[routes.router])
        await stack.enter_async_context(running(app, listener, options=options))
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=url, verify=certificates.contexts["server"], trust_env=False)
        )
        yield Endpoints(table, store_stack, client)


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_where_certificates_are_asked_for_none_is_not_enough(is_express: bool) -> None:
    routers = [TcRoutes().router, TcLeaseRoutes().router]
    app = build_app("txn", express_routers=routers, guard=TcAccess(is_on=True).guard())
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    address = f"127.0.0.1:{free_port()}"
    async with (
        running(app, Listener(address), options=options),
        httpx.AsyncClient(base_url=f"http://{address}/v1/tc/", trust_env=False) as client,
    ):
        for path in ("cluster/announce", "cluster/leave", "rm/register", "rm/unregister"):
            assert (await client.post(path, json={})).json()["error"] == "tc_server_required", path
        for path in ("cluster/list", "rm/list", "leader", "lease/acquire", "lease/renew", "lease/release"):
            assert (await client.post(path, json={})).json()["error"] == "tc_client_required", path


async def test_a_membership_that_can_not_be_stored_is_unavailable(endpoints: Endpoints) -> None:
    await endpoints.close_store()

    for path, body in (
        ("cluster/list", None),
        ("cluster/announce", ANNOUNCEMENT),
        ("cluster/leave", {"unknown": 1}),
    ):
        assert await endpoints.refusal(path, body) == (503, "tc_cluster_unavailable"), path


async def test_a_registry_that_can_not_be_stored_is_unavailable(endpoints: Endpoints) -> None:
    await endpoints.close_store()

    for path, body in (("rm/list", None), ("rm/register", REGISTRATION), ("rm/unregister", REGISTRATION)):
        assert await endpoints.refusal(path, body) == (503, "tc_rm_unavailable"), path


async def test_an_election_that_does_not_hear_of_a_new_member_is_told_to_the_caller(
    endpoints: Endpoints,
) -> None:
    endpoints.table.is_blind = True

    assert await endpoints.refusal("cluster/announce", ANNOUNCEMENT) == (500, "tc_cluster_sync_failed")
