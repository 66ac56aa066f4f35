"""Nodes over one PostgreSQL store, without certificates: they know each other by the records they share."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import httpx
import pytest

from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.common.settings import SettingsError
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.program import free_port
from tests.service.txn.tc_node import TcNode, until


@asynccontextmanager
async def plain_node(store: str) -> AsyncIterator[TcNode]:
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    app = create_app(GatewaySettings.isolated(store=store, self_endpoint=url, tc_leader_ttl_s="1s"))
    options = ServeOptions(drain_grace_s=0, shutdown_timeout_s=5)
    async with (
        running(app, Listener(address), options=options),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client,
    ):
        yield TcNode(url, {"client": client, "server": client})


async def _is_agreed(nodes: list[TcNode], above_term: int = 0) -> bool:
    leaders = [await node.leader() for node in nodes]
    named = {(leader.get("leader_endpoint"), leader.get("term")) for leader in leaders}
    return len(named) == 1 and bool(leaders[0].get("leader_id")) and leaders[0]["term"] > above_term


async def test_nodes_over_one_store_elect_a_leader_and_the_next_one_when_it_stops(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        stacks = [await stack.enter_async_context(AsyncExitStack()) for _ in range(3)]
        nodes = [await one.enter_async_context(plain_node(postgres_url)) for one in stacks]
        await until(partial(_is_agreed, nodes))
        leader = await nodes[0].leader()
        led_by = next(at for at, node in enumerate(nodes) if node.url == leader["leader_endpoint"])
        others = [node for node in nodes if node is not nodes[led_by]]

        await stacks[led_by].aclose()

        await until(partial(_is_agreed, others, leader["term"]))
        assert await others[0].members() == sorted(node.url for node in others)


def test_a_node_that_can_not_be_reached_by_its_own_word_does_not_start() -> None:
    with pytest.raises(SettingsError, match="flag --self: 'somewhere' must begin with http"):
        create_app(GatewaySettings.isolated(store="mem://", self_endpoint="somewhere"))
