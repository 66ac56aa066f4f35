"""Who decides in a cluster, and what becomes of what an old leader knew: two stores, a leader that a test appoints."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from holdfast.common.ids import new_xid
from holdfast.common.upstream.internal_call import Forwarded
from holdfast.common.wire_errors import error_answer
from holdfast.queue.layer.errors import NoMessages
from holdfast.queue.layer.message.types import DequeueOrder, EnqueueOrder, LeaseClaim, NackOrder, QueueAddress
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from holdfast.txn.cluster.errors import TcNotLeader, TcUnavailable
from holdfast.txn.cluster.lead import Lead
from holdfast.txn.cluster.leadership import Leader
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable, Role
from holdfast.txn.layer.errors import TxnFanoutFailed
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.records import RECORDS, Due, due_bounds
from holdfast.txn.layer.rules import Ask, Participant, State
from tests.service.txn.conftest import HERE, Plane, claim

A, FAR = Member("default", "a"), Member("default", "far")
ORDERS = QueueAddress("default", "orders")


class Appointed:
    """A leadership that a test hands out."""

    is_clustered = True

    def __init__(self) -> None:
        self.own_term: int | None = None
        self.known: Leader | None = None

    def term(self) -> int | None:
        return self.own_term

    def leader(self) -> Leader | None:
        return self.known


class FakeLeader:
    """The other node: remembers what it was asked, answers what it was told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, object]]] = []
        self.answers: dict[str, PeerAnswer] = {}

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
        assert body is not None
        self.asked.append((path, body))
        if path not in self.answers:
            raise PeerUnreachable("gone")
        return self.answers[path]

    def answer(self, path: str, status: int = 200, **members: Any) -> None:
        self.answers[path] = PeerAnswer(status, members)


class Node(Plane):
    """A plane whose coordinator is one of a cluster."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.leadership = Appointed()
        self.other = FakeLeader()
        self.lead = Lead(self.leadership, lambda: self.other, self.decisions)
        self.coordinator.lead = self.lead

    def lead_with(self, term: int) -> None:
        self.leadership.own_term = term
        self.leadership.known = Leader("https://here", term)

    def follow(self, term: int) -> None:
        self.leadership.own_term = None
        self.leadership.known = Leader("https://other", term)

    async def due(self) -> list[Due]:
        return [Due(record) for record in await self.store.range(*due_bounds(), limit=10)]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with open_memory(StoreOptions()) as store:
        node = Node(store)
        async with node.queue.running():
            yield node


async def test_a_leader_stamps_its_term(node: Node) -> None:
    node.lead_with(7)
    txn_id = new_xid()

    await node.lead.decide(txn_id, Ask(State.PENDING, [Participant(A)]))

    record = await RECORDS.fetch(node.store, txn_id)
    assert record is not None
    assert record.term == 7


async def test_without_a_leader_nothing_is_decided_and_nothing_joined(node: Node) -> None:
    with pytest.raises(TcUnavailable):
        await node.lead.decide(new_xid(), Ask(State.COMMIT))
    with pytest.raises(TcUnavailable):
        await node.staged("a", new_xid())
    await node.release("b", await node.staged("b", ""))  # What concerns one key goes on.

    assert await node.document("b") == b'{"n":1}'


async def test_a_leader_that_is_not_reached_is_named(node: Node) -> None:
    node.follow(3)

    with pytest.raises(TcNotLeader) as refused:
        await node.lead.decide(new_xid(), Ask(State.COMMIT))

    assert refused.value.leader_endpoint == "https://other"


async def test_a_call_is_not_forwarded_twice(node: Node) -> None:
    node.follow(3)

    with pytest.raises(TcNotLeader):
        await node.lead.decide(new_xid(), Ask(State.COMMIT), is_forwarded=True)

    assert node.other.asked == []


async def test_a_refusal_of_the_leader_is_passed_on(node: Node) -> None:
    node.follow(3)
    node.other.answer("/v1/txn/decide", 409, error="tc_term_stale", detail="old")

    with pytest.raises(Forwarded) as refused:
        await node.lead.decide(new_xid(), Ask(State.COMMIT))

    assert (refused.value.code, refused.value.status) == ("tc_term_stale", 409)


async def test_a_refusal_that_is_passed_on_still_says_whom_to_ask_and_when() -> None:
    refused = Forwarded(
        503,
        {"error": "tc_unavailable", "leader_endpoint": "https://other", "retry_after_seconds": 2, "else": 1},
    )

    answer = error_answer(refused)

    assert json.loads(answer.body) == {
        "error": "tc_unavailable",
        "detail": "the other service answered 503",
        "leader_endpoint": "https://other",
        "retry_after_seconds": 2,
    }
    assert (b"retry-after", b"2") in answer.headers


async def test_a_refusal_that_names_no_code_keeps_its_status(node: Node) -> None:
    node.follow(3)
    node.other.answer("/v1/txn/decide", 504)

    with pytest.raises(Forwarded) as refused:
        await node.lead.decide(new_xid(), Ask(State.COMMIT))

    assert (refused.value.code, refused.value.status) == ("tc_forward_failed", 504)


async def test_a_release_applies_what_the_leader_recorded_even_if_it_is_the_other_decision(
    node: Node,
) -> None:
    node.follow(3)
    node.other.answer("/v1/txn/decide", state="pending")
    txn_id = new_xid()
    grant = await node.staged("a", txn_id)
    node.other.answer("/v1/txn/decide", 409, error="txn_conflict", detail="decided: rollback")
    node.other.answer("/v1/txn/replay", state="rollback")

    await node.release("a", grant, Decision.COMMIT)

    assert await node.document("a") is None
    assert await node.decisions.replay(txn_id) is State.ROLLBACK


async def test_a_follower_does_not_roll_back_on_its_own(node: Node) -> None:
    node.follow(3)
    node.other.answer("/v1/txn/decide", state="pending")
    txn_id = new_xid()
    await node.staged("a", txn_id, ttl_s=5)
    node.clock.advance(10)
    node.other.answer("/v1/txn/decide", state="commit")  # Decided there before the lease ran out.

    for due in await node.due():
        await node.lead.resume(due)

    assert await node.document("a") == b'{"n":1}'
    assert await node.decisions.replay(txn_id) is State.COMMIT


async def test_a_replay_on_a_follower_asks_the_leader_before_it_rolls_back(node: Node) -> None:
    node.follow(3)
    node.other.answer("/v1/txn/decide", state="pending")
    txn_id = new_xid()
    await node.staged("a", txn_id, ttl_s=5)
    assert await node.lead.replay(txn_id) is State.PENDING
    node.clock.advance(10)
    node.other.answer("/v1/txn/decide", state="commit")  # Decided there before the lease ran out.

    assert await node.lead.replay(txn_id) is State.COMMIT

    assert await node.document("a") == b'{"n":1}'
    assert await node.lead.replay(txn_id) is State.COMMIT


async def test_a_replay_on_a_follower_rolls_nothing_back_without_the_leader(node: Node) -> None:
    node.follow(3)
    node.other.answer("/v1/txn/decide", state="pending")
    txn_id = new_xid()
    await node.staged("a", txn_id, ttl_s=5)
    node.clock.advance(10)
    node.other.answers.clear()

    with pytest.raises(TcNotLeader):
        await node.lead.replay(txn_id)

    record = await RECORDS.fetch(node.store, txn_id)
    assert record is not None
    assert record.state == "pending"


async def test_what_the_leader_ends_by_a_replay_is_kept_until_it_has_reached_everybody(node: Node) -> None:
    node.lead_with(3)
    txn_id = new_xid()
    await node.lead.decide(txn_id, Ask(State.PENDING, [Participant(FAR, "island-2")]))
    node.clock.advance(60)
    node.lead_with(4)

    assert await node.lead.replay(txn_id) is State.ROLLBACK

    record = await RECORDS.fetch(node.store, txn_id)
    assert record is not None
    assert (record.state, record.term) == ("rollback", 4)


async def test_what_an_old_leader_has_decided_is_handed_to_the_new_one(node: Node) -> None:
    node.lead_with(3)
    txn_id = new_xid()
    with pytest.raises(TxnFanoutFailed):
        await node.lead.decide(txn_id, Ask(State.COMMIT, [Participant(A), Participant(FAR, "island-2")]))
    node.follow(4)
    node.other.answer("/v1/txn/decide", state="commit")

    for due in await node.due():
        await node.lead.resume(due)

    path, body = node.other.asked[-1]
    assert (path, body["state"]) == ("/v1/txn/decide", "commit")
    assert body["participants"] == [
        {"namespace": "default", "key": "a", "backend_hash": HERE},
        {"namespace": "default", "key": "far", "backend_hash": "island-2"},
    ]
    assert await RECORDS.fetch(node.store, txn_id) is None
    assert await node.decisions.replay(txn_id) is State.COMMIT


async def test_a_keepalive_is_told_to_the_leader(node: Node) -> None:
    node.follow(3)
    node.other.answer("/v1/txn/decide", state="pending")
    grant = await node.staged("a", new_xid(), ttl_s=5)
    told = len(node.other.asked)
    node.clock.advance(4)

    await node.leases.keepalive(A, claim(grant), 60)

    assert len(node.other.asked) == told + 1
    expires_at_unix = node.other.asked[-1][1]["expires_at_unix"]
    assert isinstance(expires_at_unix, int)
    assert expires_at_unix >= int(node.clock.wall_s()) + 60


async def test_a_nack_keeps_its_delay_though_the_leader_rolls_the_rest_back(node: Node) -> None:
    node.lead_with(3)
    txn_id = new_xid()
    content = await node.queue.arrivals.content_of(ORDERS, b"m")
    await node.queue.arrivals.enqueue([(EnqueueOrder(ORDERS, "corr"), content)])
    await node.staged("a", txn_id)
    (taken,) = await node.queue.dequeue(DequeueOrder(ORDERS, "worker", txn_id=txn_id))
    claimed = LeaseClaim(
        ORDERS, taken.message.message_id, taken.lease_id, taken.fencing_token, txn_id, taken.meta_etag
    )

    await node.queue.nack(NackOrder(claimed, delay_s=10))

    with pytest.raises(NoMessages):
        await node.queue.dequeue(DequeueOrder(ORDERS, "worker"))
    node.clock.advance(10)
    assert len(await node.queue.dequeue(DequeueOrder(ORDERS, "worker"))) == 1
    assert await node.document("a") is None
    assert await node.decisions.replay(txn_id) is State.ROLLBACK


async def test_an_ack_commits_by_way_of_the_leader(node: Node) -> None:
    node.lead_with(3)
    txn_id = new_xid()
    content = await node.queue.arrivals.content_of(ORDERS, b"m")
    await node.queue.arrivals.enqueue([(EnqueueOrder(ORDERS, "corr"), content)])
    await node.staged("a", txn_id)
    (taken,) = await node.queue.dequeue(DequeueOrder(ORDERS, "worker", txn_id=txn_id))

    acked = await node.queue.ack(
        LeaseClaim(
            ORDERS, taken.message.message_id, taken.lease_id, taken.fencing_token, txn_id, taken.meta_etag
        )
    )

    assert acked.correlation_id == "corr"
    assert await node.document("a") == b'{"n":1}'
    node.clock.advance(3600)
    with pytest.raises(NoMessages):
        await node.queue.dequeue(DequeueOrder(ORDERS, "worker"))
