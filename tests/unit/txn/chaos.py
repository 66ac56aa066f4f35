"""Clusters in virtual time, and random misfortune that comes over them, the same for the same seed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from tests.unit.txn.cluster import PACE, Network, Observer, SimulatedNode, until

FAILOVER_S = 2 * PACE.ttl_s
"""The end of a lease, and some tries to get the next one."""


class Cluster:
    """Nodes that were started together, and what a test does to them."""

    def __init__(self, nodes: list[SimulatedNode], network: Network, observer: Observer) -> None:
        self.nodes = nodes
        self.network = network
        self.observer = observer
        self._watching = asyncio.create_task(observer.watch())
        self.endpoints = [node.node.endpoint for node in nodes]

    def verify(self) -> None:
        """Raise what the observer has seen."""
        if self._watching.done():
            self._watching.result()

    async def aclose(self) -> None:
        self._watching.cancel()
        for node in self.nodes:
            await node.kill()

    def leader(self) -> SimulatedNode | None:
        return next((node for node in self.nodes if node.term() is not None), None)

    async def elected(self, within_s: float = FAILOVER_S) -> SimulatedNode:
        await until(lambda: self.leader() is not None, within_s=within_s)
        leader = self.leader()
        assert leader is not None
        return leader

    def is_led_by_another(self, than: SimulatedNode) -> bool:
        return self.leader() not in (None, than)

    def followers(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node is not self.leader()]


@asynccontextmanager
async def cluster(count: int, seed: int = 1, quorum: int | None = None) -> AsyncIterator[Cluster]:
    random = Random(seed)
    network = Network(random)
    observer = Observer(network)
    async with AsyncExitStack() as stack:
        nodes: list[SimulatedNode] = []
        for number in range(count):
            store = await stack.enter_async_context(open_memory(StoreOptions()))
            nodes.append(SimulatedNode(f"node-{number}", store, network, random))
            network.nodes[nodes[-1].node.id] = nodes[-1]
        for node in nodes:
            await node.start([peer.node.endpoint for peer in nodes], quorum)
        running = Cluster(nodes, network, observer)
        stack.push_async_callback(running.aclose)
        yield running
        running.verify()


class Chaos:
    """Random misfortune, the same for the same seed."""

    def __init__(self, nodes: Cluster, random: Random) -> None:
        self._nodes = nodes
        self._random = random

    async def strike(self) -> None:
        node = self._random.choice(self._nodes.nodes)
        network = self._nodes.network
        names = [one.node.id for one in self._nodes.nodes]
        match self._random.randrange(9):
            case 0 | 1:
                await node.kill()
            case 2 | 3:
                if not node.is_alive:
                    await node.start(self._nodes.endpoints)
            case 4:
                node.is_running.clear()
            case 5:
                node.is_running.set()
            case 6:
                network.isolate(*self._random.sample(names, self._random.randrange(1, len(names))))
            case 7:
                network.cut(*self._random.sample(names, 2))
            case _:
                network.loss = self._random.choice((0.0, 0.1, 0.4))
                network.delay_s_max = self._random.choice((0.01, 0.5, 6.0))
        if self._random.random() < 0.2:
            network.heal()

    async def end(self) -> None:
        self._nodes.network.heal()
        for node in self._nodes.nodes:
            node.is_running.set()
            if not node.is_alive:
                await node.start(self._nodes.endpoints)


async def live_through_chaos(count: int, seed: int) -> None:
    """Hours of misfortune; whenever it ends, a node leads again soon."""
    random = Random(f"{count} {seed}")
    async with cluster(count, seed=seed) as nodes:
        chaos = Chaos(nodes, random)
        for _ in range(10):
            for _ in range(25):
                await chaos.strike()
                await asyncio.sleep(random.uniform(0.1, 10))
            await chaos.end()
            nodes.verify()
            await nodes.elected(within_s=4 * PACE.ttl_s)
        assert nodes.network.message_count > 500
        assert len(nodes.observer.leaders) > 10
