"""Elections of three to five nodes in virtual time: killed, frozen, cut off, with messages lost and late."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random

import pytest

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.txn.leadership import check_term
from holdfast.txn.tc_errors import TcTermRequired, TcTermStale, TcUnavailable
from tests.unit.txn.cluster import PACE, Network, Observer, SimulatedNode, until
from tests.unit.txn.virtual_time import run_virtual

FAILOVER_S = 2 * PACE.ttl_s
"""The end of a lease, and some tries to get the next one."""


class Cluster:
    """Nodes that were started together, and what a test does to them."""

    def __init__(self, nodes: list[SimulatedNode], network: Network, observer: Observer) -> None:
        self.nodes = nodes
        self.network = network
        self.observer = observer
        self.endpoints = [node.node.endpoint for node in nodes]

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
        watching = asyncio.create_task(observer.watch())
        yield Cluster(nodes, network, observer)
        if watching.done():
            await watching  # It ends only by what it saw.
        watching.cancel()
        for node in nodes:
            await node.kill()


def _has_no_term(node: SimulatedNode) -> bool:
    return node.term() is None


def simulated(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test that runs in virtual time."""

    async def main() -> None:
        await test()

    def run() -> None:
        run_virtual(main)

    run.__doc__ = test.__doc__
    return run


@simulated
async def test_fresh_nodes_elect_one_leader_and_all_know_it() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected(within_s=3)

        await asyncio.sleep(1)

        known = {node.election.leader() for node in nodes.nodes if node.election is not None}
        assert len(known) == 1
        assert leader.election is not None
        assert known == {leader.election.leader()}
        assert leader.term() == 1


@simulated
async def test_a_leader_goes_on_leading_in_its_term() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected()

        await asyncio.sleep(100 * PACE.ttl_s)

        assert leader.term() == 1
        assert list(nodes.observer.leaders) == [1]


@simulated
async def test_a_resource_manager_takes_decisions_of_the_leader_only() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected()
        await asyncio.sleep(1)
        follower = nodes.followers()[0].election
        assert follower is not None

        check_term(follower, leader.term() or 0)
        with pytest.raises(TcTermRequired):
            check_term(follower, 0)
        with pytest.raises(TcTermStale) as refusal:
            check_term(follower, 7)
        assert refusal.value.leader_endpoint == leader.node.endpoint


@simulated
async def test_a_leader_without_a_quorum_stops_deciding_within_one_lease() -> None:
    async with cluster(3) as nodes:
        for _ in range(10):
            leader = await nodes.elected()
            old_term = leader.term()
            await asyncio.sleep(3)
            nodes.network.isolate(leader.node.id)

            await until(partial(_has_no_term, leader), within_s=PACE.ttl_s)
            assert leader.election is not None
            with pytest.raises(TcUnavailable):
                check_term(leader.election, old_term or 0)
            await nodes.elected()
            nodes.network.heal()


@simulated
async def test_without_a_quorum_nobody_leads() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected()
        for node in nodes.followers():
            await node.kill()

        await until(lambda: leader.term() is None, within_s=PACE.ttl_s)
        await asyncio.sleep(20 * PACE.ttl_s)

        assert nodes.leader() is None


@simulated
async def test_thirty_lost_leaders_each_have_a_term_of_their_own() -> None:
    async with cluster(3, seed=30) as nodes:
        terms: list[int] = []
        for _ in range(30):
            leader = await nodes.elected()
            terms.append(leader.term() or 0)
            await leader.kill()
            await nodes.elected()
            await leader.start(nodes.endpoints)
            await asyncio.sleep(PACE.ttl_s)

        assert terms == sorted(set(terms))
        assert len(nodes.observer.leaders) >= 30


@simulated
async def test_a_leader_that_was_frozen_wakes_up_without_the_lead() -> None:
    async with cluster(3, seed=4) as nodes:
        for _ in range(10):
            leader = await nodes.elected()
            old_term = leader.term() or 0
            leader.is_running.clear()
            await until(partial(nodes.is_led_by_another, leader), within_s=2 * FAILOVER_S)

            leader.is_running.set()
            await asyncio.sleep(1)

            assert leader.term() is None
            current = (await nodes.elected()).election
            assert current is not None
            with pytest.raises(TcTermStale):
                check_term(current, old_term)


@simulated
async def test_a_leader_that_resigns_is_followed_at_once() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected()
        assert leader.election is not None
        await asyncio.sleep(1)

        leader.election.set_peers([])

        await until(lambda: nodes.leader() not in (None, leader), within_s=3)


@simulated
async def test_terms_go_on_after_all_nodes_were_restarted() -> None:
    async with cluster(3) as nodes:
        for expected in (1, 2, 3):
            leader = await nodes.elected()
            assert leader.term() == expected
            await asyncio.sleep(1)
            for node in nodes.nodes:
                await node.kill()
            for node in nodes.nodes:
                await node.start(nodes.endpoints)


@simulated
async def test_a_node_that_comes_back_follows_the_leader_of_the_term_it_slept_through() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected()
        follower = nodes.followers()[0]
        await asyncio.sleep(1)
        await follower.kill()
        await asyncio.sleep(60)

        await follower.start(nodes.endpoints)

        await until(
            lambda: follower.election is not None and follower.election.leader() is not None, within_s=6
        )
        assert leader.term() == 1


@simulated
async def test_a_fixed_quorum_does_not_shrink_to_the_survivors() -> None:
    async with cluster(3, quorum=2) as nodes:
        leader = await nodes.elected()
        for node in nodes.followers():
            await node.kill()
        assert leader.election is not None

        leader.election.set_peers([leader.node.endpoint], 2)
        await asyncio.sleep(10 * PACE.ttl_s)

        assert nodes.leader() is None


@simulated
async def test_the_last_member_leads_when_the_quorum_follows_the_membership() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected()
        survivor = nodes.followers()[0]
        for node in nodes.nodes:
            if node is not survivor:
                await node.kill()
        assert survivor.election is not None and leader is not survivor

        survivor.election.set_peers([survivor.node.endpoint])

        assert await nodes.elected() is survivor


@simulated
async def test_a_node_that_only_hears_nothing_does_not_unseat_the_leader() -> None:
    async with cluster(3) as nodes:
        leader = await nodes.elected()
        deaf = nodes.followers()[0]
        for node in nodes.nodes:
            nodes.network.cut(node.node.id, deaf.node.id)

        await asyncio.sleep(20 * PACE.ttl_s)

        assert leader.term() == 1


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


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_at_most_one_leads_in_each_term(count: int, seed: int) -> None:
    async def main() -> None:
        random = Random(f"{count} {seed}")
        async with cluster(count, seed=seed) as nodes:
            chaos = Chaos(nodes, random)
            for _ in range(10):
                for _ in range(25):
                    await chaos.strike()
                    await asyncio.sleep(random.uniform(0.1, 10))
                await chaos.end()
                await nodes.elected(within_s=4 * PACE.ttl_s)
            assert nodes.network.message_count > 500
            assert len(nodes.observer.leaders) > 10

    run_virtual(main)
