"""Members of a cluster: who counts, for how long, and how large a quorum is."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store, Transaction
from holdfast.storage.tables import Table
from holdfast.txn.cluster.election.timing import ElectionTiming
from holdfast.txn.cluster.errors import ClusterUnavailable
from holdfast.txn.cluster.membership.membership import ANNOUNCE, LEAVE, LEAVE_FANOUT, Membership
from holdfast.txn.cluster.membership.records import MEMBERS_MAX, MemberTable, Roster
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable, Role
from holdfast.txn.layer.records_pb2 import TcMember

A, B, C = "https://a", "https://b", "https://c"
TTL_MS = 45_000
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_memory(StoreOptions()) as opened:
        yield opened


@pytest.fixture
def table(store: Store) -> MemberTable:
    return MemberTable(store, ttl_ms=TTL_MS, keeps_all=False)


async def test_a_member_counts_until_its_time_is_over(table: MemberTable) -> None:
    expires_at_ms = await table.announce("b", B, 1000)
    await table.announce("a", A, 2000)

    assert expires_at_ms == 1000 + TTL_MS
    assert (await table.roster(expires_at_ms - 1)).endpoints == (A, B)
    assert (await table.roster(expires_at_ms)).endpoints == (A,)
    assert (await table.roster(expires_at_ms)).updated_at_ms == 2000


async def test_a_member_that_says_so_again_in_time_stays(table: MemberTable) -> None:
    await table.announce("a", A, 0)
    await table.announce("a", A, TTL_MS - 1)

    assert (await table.roster(TTL_MS + 5)).endpoints == (A,)


async def test_two_identities_at_one_endpoint_are_one_node(table: MemberTable) -> None:
    await table.announce("old", A, 0)
    await table.announce("new", A, 0)

    roster = await table.roster(1)

    assert (roster.endpoints, roster.known_count) == ((A,), 1)


async def test_a_member_that_left_is_gone_until_it_comes_back(table: MemberTable) -> None:
    await table.announce("a", A, 0)
    await table.leave("a", 1)
    left = await table.roster(2)
    await table.announce("a", A, 3)

    assert (left.endpoints, left.known_count, left.left_count) == ((), 0, 1)
    assert (await table.roster(4)).endpoints == (A,)


async def test_who_never_was_a_member_has_nothing_to_leave(table: MemberTable) -> None:
    await table.leave("stranger", 0)

    assert await table.roster(1) == Roster()


async def test_members_long_gone_are_forgotten_unless_a_fixed_quorum_counts_them(store: Store) -> None:
    forgetful = MemberTable(store, ttl_ms=TTL_MS, keeps_all=False)
    faithful = MemberTable(store, ttl_ms=TTL_MS, keeps_all=True)
    await faithful.announce("a", A, 0)
    await faithful.announce("b", B, 2 * DAY_MS)
    assert (await faithful.roster(2 * DAY_MS)).known_count == 2

    await forgetful.announce("b", B, 2 * DAY_MS)

    assert (await forgetful.roster(2 * DAY_MS)).known_count == 1


async def test_a_cluster_has_a_limit_of_members(store: Store, table: MemberTable) -> None:
    def fill(tx: Transaction) -> None:
        members = Table("sys", TcMember)
        for number in range(MEMBERS_MAX):
            members.put(tx, TcMember(endpoint=A), "tc-member", f"n-{number}")

    await store.transact(fill)

    with pytest.raises(ClusterUnavailable):
        await table.announce("one-more", B, 0)
    await table.announce("n-0", B, 0)


@pytest.mark.parametrize(
    ("roster", "size", "peers", "quorum"),
    [
        (Roster(known_count=1), 3, 1, 2),  # The last one seen of three.
        (Roster(known_count=3), 3, 3, 2),
        (Roster(known_count=2, left_count=1), 3, 2, 2),  # One has left: a majority of two.
        (Roster(known_count=1, left_count=2), 3, 1, 1),
        (Roster(known_count=4), 3, 4, 3),  # More came than were planned for.
        (Roster(known_count=3, left_count=1), 3, 3, 2),  # One left, another took its place.
    ],
)
def test_a_fixed_quorum_counts_all_that_have_not_left(
    roster: Roster, size: int, peers: int, quorum: int
) -> None:
    assert roster.quorum(size, peers) == quorum


class FakePeers:
    """Other nodes that answer as a test says; all calls are remembered."""

    def __init__(self, answers: Mapping[str, Mapping[str, Any] | None]) -> None:
        self._answers = answers
        self.calls: list[tuple[str, str, Mapping[str, str]]] = []

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Role = Role.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        self.calls.append((endpoint, path, headers or {}))
        assert role is Role.SERVER
        members = self._answers.get(endpoint)
        if members is None:
            raise PeerUnreachable("connection refused")
        return PeerAnswer(403 if "error" in members else 200, members)


class Member:
    """A membership with what it told the election."""

    def __init__(
        self, table: MemberTable, port: FakePeers, *, seeds: tuple[str, ...] = (), size: int = 0
    ) -> None:
        self.now_ms = 1_000_000
        self.told: list[tuple[tuple[str, ...], int | None]] = []
        self.membership = Membership(
            table,
            port,
            identity="id-a",
            endpoint=A,
            seeds=seeds,
            timing=ElectionTiming(),
            now_ms=lambda: self.now_ms,
            fixed_quorum=size,
            set_peers=lambda peers, quorum: self.told.append((tuple(peers), quorum)),
        )


async def test_a_node_without_seeds_is_a_cluster_of_one(table: MemberTable) -> None:
    member = Member(table, FakePeers({}))

    await member.membership.join()

    assert member.told[-1] == ((A,), None)


async def test_a_node_announces_itself_to_whomever_it_hears_of(table: MemberTable) -> None:
    port = FakePeers({B: {"endpoints": [A, B, C]}, C: {"endpoints": [A, B, C, "nonsense"]}})
    member = Member(table, port, seeds=(B,))

    await member.membership.join()

    assert [call[:2] for call in port.calls] == [(B, ANNOUNCE), (C, ANNOUNCE)]
    assert member.told[-1] == ((A, B, C), None)


async def test_nodes_that_start_at_the_same_time_count_the_seeds_they_have_not_heard_of(
    table: MemberTable,
) -> None:
    member = Member(table, FakePeers({}), seeds=(A, B, C))

    await member.membership.join()
    member.now_ms += TTL_MS + 1
    await member.membership.announce("id-a", A)

    assert [peers for peers, _ in member.told] == [(A, B, C), (A,)]


async def test_a_node_that_leaves_tells_all_members_before_it_goes(table: MemberTable) -> None:
    port = FakePeers({B: {"endpoints": [A, B]}})
    member = Member(table, port, seeds=(B,), size=2)
    await member.membership.join()
    await member.membership.announce("id-b", B)

    roster = await member.membership.leave("id-a", is_fanned_out=False)

    assert port.calls[-1] == (B, LEAVE, {LEAVE_FANOUT: "1"})
    assert roster.endpoints == (B,)
    assert member.told[-1] == ((B,), 1)


async def test_a_node_that_can_not_tell_all_stays(table: MemberTable) -> None:
    member = Member(table, FakePeers({}))
    await member.membership.join()
    await member.membership.announce("id-b", B)

    with pytest.raises(ClusterUnavailable, match="https://b"):
        await member.membership.leave("id-a", is_fanned_out=False)

    assert (await member.membership.roster()).endpoints == (A, B)


async def test_a_leave_that_was_passed_on_is_not_passed_on_again(table: MemberTable) -> None:
    port = FakePeers({})
    member = Member(table, port)
    await member.membership.join()
    await member.membership.announce("id-b", B)

    roster = await member.membership.leave("id-b", is_fanned_out=True)

    assert roster.endpoints == (A,)
    assert port.calls == []
