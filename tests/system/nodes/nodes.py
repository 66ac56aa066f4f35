"""Processes over one PostgreSQL with several entrances: two planes in one process each, and a split plane with two
replicas of leases and of queue, one behind each of its gateways. What happens at one entrance must be seen at the other.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, Final, NamedTuple

import httpx

from holdfast.common.logging import configure_logging
from holdfast.common.role import Role
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, serve
from holdfast.gateway.app import create_app as create_gateway
from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.options import StoreOptions
from holdfast.storage.postgres.store import open_postgres
from tests.infra.gateway import SECRET
from tests.infra.program import free_ports
from tests.system.split.plane import run_role
from tests.wire.lockd.conftest import Wire

READY_S: Final = 60.0
CALL_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02


class Node(NamedTuple):
    """One process."""

    name: str
    role: Role
    port: int
    flags: dict[str, Any]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def run_node(node: Node) -> None:
    """The life of one process."""
    if node.role is not Role.ALL:
        run_role(node.role, node.port, node.flags)
        return
    configure_logging("error")
    options = ServeOptions(drain_grace_s=0, shutdown_timeout_s=2)
    app = create_gateway(GatewaySettings.isolated(**node.flags))
    serve(app, Listener(f"127.0.0.1:{node.port}"), options=options)


class Entrance(Wire):
    """Where clients come in, and the processes that do their work."""

    def __init__(self, client: httpx.AsyncClient, workers: Sequence[Node]) -> None:
        super().__init__(client, [node.url for node in workers])
        self.workers = workers

    async def level(self, metric: str) -> float:
        """The sum over the processes behind this entrance."""
        found = re.findall(rf"^{metric}(?:{{[^}}]*}})? (\S+)$", await self.metrics(), re.MULTILINE)
        return sum(float(value) for value in found)

    async def until_waiting(self, count: int = 1) -> None:
        """Return when so many callers wait for leases here."""
        await until(lambda: self._has_waiters(count))

    async def _has_waiters(self, count: int) -> bool:
        return await self.level("holdfast_lease_waiters") >= count


class Pair(NamedTuple):
    """Two entrances to one store, by what they are."""

    a: Entrance
    b: Entrance


class Nodes:
    """The processes and their entrances, by name."""

    def __init__(self, processes: ForkServerContext) -> None:
        self._context = processes
        self._processes: dict[str, BaseProcess] = {}
        self.nodes: dict[str, Node] = {}
        self.entrances: dict[str, Entrance] = {}

    @property
    def store_url(self) -> str:
        url: str = self.nodes["one"].flags["store"]
        return url

    def pair(self, names: str) -> Pair:
        a, b = names.split("-")
        return Pair(self.entrances[a], self.entrances[b])

    def start(self, node: Node) -> None:
        process = self._context.Process(target=run_node, args=(node,), name=node.name, daemon=True)
        process.start()
        self._processes[node.name] = process
        self.nodes[node.name] = node

    def signal(self, name: str, number: int) -> None:
        pid = self._processes[name].pid
        assert pid is not None
        os.kill(pid, number)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].join()

    async def ready(self) -> None:
        async with httpx.AsyncClient(timeout=CALL_TIMEOUT_S) as client:
            for node in self.nodes.values():
                await until(lambda node=node: self._answers(client, node), READY_S)  # type: ignore[misc]

    async def _answers(self, client: httpx.AsyncClient, node: Node) -> bool:
        assert self._processes[node.name].is_alive(), f"{node.name} has died"
        try:
            return (await client.get(f"{node.url}/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()


@asynccontextmanager
async def whole_nodes(
    processes: ForkServerContext, store_urls: dict[str, str], **settings: object
) -> AsyncIterator[Nodes]:
    """A plane in one process under each of these names; the URL of its store may lead through a proxy."""
    flags = {"qrf_disabled": True, "txn_replay_interval_s": 1, **settings}
    ports = free_ports(len(store_urls))
    started = [
        Node(name, Role.ALL, port, {"store": url, **flags})
        for (name, url), port in zip(store_urls.items(), ports, strict=True)
    ]
    async with _running(processes, started, {node.name: [node] for node in started}) as nodes:
        yield nodes


@asynccontextmanager
async def all_nodes(processes: ForkServerContext, store_url: str, **settings: object) -> AsyncIterator[Nodes]:
    """`one` and `two` are whole planes; `left` and `right` are gateways of one split plane."""
    names = ["one", "two", "left", "right", "leases1", "leases2", "queue1", "queue2", "state", "txn"]
    ports: dict[str, int] = dict(zip(names, free_ports(len(names)), strict=True))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    flags = {"store": store_url, "qrf_disabled": True, "txn_replay_interval_s": 1, **settings}
    split = {**flags, "internal_secret": SECRET, "peer_state": urls["state"], "peer_txn": urls["txn"]}
    both = {f"peer_{name}": f"{urls[name + '1']},{urls[name + '2']}" for name in ("leases", "queue")}

    def node(name: str, role: Role, node_flags: dict[str, Any]) -> Node:
        return Node(name, role, ports[name], node_flags)

    started = [
        node("one", Role.ALL, flags),
        node("two", Role.ALL, flags),
        *(node(f"leases{number}", Role.LEASES, {**split, **both}) for number in (1, 2)),
        *(node(f"queue{number}", Role.QUEUE, {**split, **both}) for number in (1, 2)),
        node("state", Role.STATE, {**split, **both}),
        node("txn", Role.TXN, {**split, **both}),
        *(
            node(
                name,
                Role.GATEWAY,
                {**split, "peer_leases": urls[f"leases{number}"], "peer_queue": urls[f"queue{number}"]},
            )
            for number, name in ((1, "left"), (2, "right"))
        ),
    ]
    by_name = {node.name: node for node in started}
    workers = {
        "one": [by_name["one"]],
        "two": [by_name["two"]],
        "left": [by_name["leases1"], by_name["queue1"]],
        "right": [by_name["leases2"], by_name["queue2"]],
    }
    async with _running(processes, started, workers) as nodes:
        yield nodes


@asynccontextmanager
async def _running(
    processes: ForkServerContext, started: Sequence[Node], workers: dict[str, list[Node]]
) -> AsyncIterator[Nodes]:
    nodes = Nodes(processes)
    try:
        for node in started:
            nodes.start(node)
        await nodes.ready()
        async with AsyncExitStack() as stack:
            for name, behind in workers.items():
                url = nodes.nodes[name].url
                client = httpx.AsyncClient(base_url=url, timeout=CALL_TIMEOUT_S)
                nodes.entrances[name] = Entrance(await stack.enter_async_context(client), behind)
            yield nodes
    finally:
        nodes.end()


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline_s, "it did not come to pass in time"
        await asyncio.sleep(_POLL_S)


async def compact(store_url: str) -> None:
    """Drop all history, as a database does under many commits; a follower that was not told yet has missed it."""
    async with open_postgres(store_url, StoreOptions(history_revisions_max=0)) as store:
        await store.compact()
