"""A queue over keys whose processes are killed again and again: nothing is lost, and nothing comes again after its ack."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast.storage.opening import open_store
from holdfast.storage.port import Store
from tests.infra.key_queue import check_queue
from tests.infra.program import free_port, free_ports
from tests.system.cli import Server, serving
from tests.system.queue.key_soak import QUEUE, Client, Consumer, Ledger, Producer, b64, text

PRODUCERS, CONSUMERS = 4, 4
FLAGS = ("--qrf-disabled",)


async def run_clients(ports: list[int], ledger: Ledger, count: int) -> None:
    """Send and consume so many messages; returns when every one of them is acknowledged."""
    async with consuming(ports, ledger):
        producers = [
            Producer(ports, first).run(ledger, f"p{first}", count // PRODUCERS) for first in range(PRODUCERS)
        ]
        await asyncio.gather(*producers)
        await drained(ports, ledger)


@asynccontextmanager
async def consuming(ports: list[int], ledger: Ledger) -> AsyncIterator[None]:
    consumers = [
        asyncio.create_task(Consumer(ports, first, f"c{first}", ledger).run()) for first in range(CONSUMERS)
    ]
    try:
        yield
    finally:
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)


async def drained(ports: list[int], ledger: Ledger) -> None:
    """Nothing is left in the ordered queue."""
    client = Client(ports)
    while True:
        answer = await client.call(
            "kv/range", key=b64(f"/queue/{QUEUE}/0"), range_end=b64(f"/queue/{QUEUE}/1"), count_only=True
        )
        if answer is not None and "count" not in answer:
            await client.hang_up()
            return
        await asyncio.sleep(0.2)


async def check_store(store: Store, ledger: Ledger) -> None:
    """What is left behind: the rows agree with the keys, and the next idx is the one after the last."""
    keys = await store.view(lambda view: check_queue(view, QUEUE.encode()))
    assert keys.messages == {}
    ledger.check()


async def restarting(home: Path, port: int, kill_each_s: float, is_over: asyncio.Event) -> int:
    """A process that is killed and started again until all is done; returns how often."""
    kills = 0
    while not is_over.is_set():
        with serving(home, "--listen", f"127.0.0.1:{port}", *FLAGS) as server:
            try:
                async with asyncio.timeout(kill_each_s):
                    await is_over.wait()
            except TimeoutError:
                kills += 1
            await asyncio.to_thread(server.stop, signal.SIGKILL)
    return kills


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("count", "kill_each_s"), [(1200, 0.4), pytest.param(10_000, 5.0, marks=pytest.mark.long)]
)
async def test_one_process_on_disk_that_is_killed_loses_and_repeats_nothing(
    tmp_path: Path, count: int, kill_each_s: float
) -> None:
    port = free_port()
    ledger, is_over = Ledger(), asyncio.Event()
    plane = asyncio.create_task(restarting(tmp_path, port, kill_each_s, is_over))

    await run_clients([port], ledger, count)
    is_over.set()
    kills = await plane

    assert kills > 0
    assert len(ledger.accepted) == count
    async with open_store(f"disk://{tmp_path}/.local/share/holdfast") as store:
        await check_store(store, ledger)


class Nodes:
    """Processes on one store, by their ports."""

    def __init__(self, home: Path, url: str, ports: list[int]) -> None:
        self._home = home
        self._url = url
        self.ports = ports
        self._servers: dict[int, tuple[Server, ExitStack]] = {}
        self.members: dict[str, int] = {}

    async def start(self, port: int) -> None:
        stack = ExitStack()
        command = ("--listen", f"127.0.0.1:{port}", "--store", self._url, *FLAGS)
        server = await asyncio.to_thread(stack.enter_context, serving(self._home, *command))
        self._servers[port] = server, stack
        answer = await Client([port]).call("kv/range", key=b64("/"))
        self.members[answer["header"]["member_id"]] = port

    async def kill(self, port: int) -> None:
        server, stack = self._servers.pop(port)
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        stack.close()

    async def stop(self) -> None:
        for port in list(self._servers):
            await self.kill(port)

    async def host(self) -> int | None:
        """The port of the one that the queue names."""
        client = Client(list(self._servers))
        answer = await client.call("kv/range", key=b64(f"/queue/{QUEUE}"))
        if answer is None or "kvs" not in answer:
            return None
        return self.members[text(answer["kvs"][0]["value"])]


@asynccontextmanager
async def nodes_over(home: Path, url: str, count: int) -> AsyncIterator[Nodes]:
    nodes = Nodes(home, url, free_ports(count))
    try:
        for port in nodes.ports:
            await nodes.start(port)
        yield nodes
    finally:
        await nodes.stop()


async def kill_hosts(nodes: Nodes, kill_each_s: float, ledger: Ledger, is_over: asyncio.Event) -> int:
    """Kill the one that the queue names, wait until another one is named, start it again; returns how often."""
    kills = 0
    probes = 0
    while not is_over.is_set():
        await asyncio.sleep(kill_each_s)
        port = await nodes.host()
        if port is None:
            continue
        await nodes.kill(port)
        kills += 1
        others = Producer([one for one in nodes.ports if one != port])
        while (await nodes.host()) in (None, port):
            # Whichever handles an event of the queue takes it over, once the lease of the dead one has ended.
            await others.send(ledger, f"probe-{probes}")
            probes += 1
            await asyncio.sleep(0.5)
        await others.hang_up()
        await nodes.start(port)
    return kills


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("processes", "count", "kill_each_s"),
    [(2, 400, 1.0), pytest.param(3, 10_000, 5.0, marks=pytest.mark.long)],
)
async def test_processes_on_one_database_of_which_the_named_one_is_killed_lose_and_repeat_nothing(
    tmp_path: Path, postgres_url: str, processes: int, count: int, kill_each_s: float
) -> None:
    ledger, is_over = Ledger(), asyncio.Event()
    async with nodes_over(tmp_path, postgres_url, processes) as nodes:
        killing = asyncio.create_task(kill_hosts(nodes, kill_each_s, ledger, is_over))
        async with consuming(nodes.ports, ledger):
            producers = [
                Producer(nodes.ports, first).run(ledger, f"p{first}", count // PRODUCERS)
                for first in range(PRODUCERS)
            ]
            await asyncio.gather(*producers)
            is_over.set()
            kills = await killing
            await drained(nodes.ports, ledger)

    assert kills > 0
    assert len(ledger.accepted) >= count
    async with open_store(postgres_url) as store:
        await check_store(store, ledger)
