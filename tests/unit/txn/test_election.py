"""Elections of three to five nodes in virtual time: killed, frozen, cut off, with messages lost and late."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from holdfast.txn.cluster.errors import TcUnavailable
from holdfast.txn.cluster.leadership import check_term
from holdfast.txn.layer.errors import TcTermRequired, TcTermStale
from tests.unit.txn.chaos import FAILOVER_S, cluster, live_through_chaos
from tests.unit.txn.cluster import PACE, SimulatedNode, until
from tests.unit.txn.virtual_time import run_virtual


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
async def test_without_a_quorum_no_node_leads() -> None:
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


@pytest.mark.parametrize("count", [3, pytest.param(4, marks=pytest.mark.long), 5])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_whatever_happens_at_most_one_leads_in_each_term(count: int, seed: int) -> None:
    run_virtual(partial(live_through_chaos, count, seed))
