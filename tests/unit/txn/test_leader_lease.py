"""The leader's lease of one peer: votes, followers, terms; then several peers under any order of events."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.txn.cluster.election.leader_lease import LeaderLease
from holdfast.txn.cluster.election.terms import NO_TERM, Term
from holdfast.txn.cluster.errors import TcLeaseActive
from holdfast.txn.layer.errors import LeaderRefusal, TcTermStale
from tests.infra.examples import examples

TTL_MS = 1000
A, B = "node-a", "node-b"
FREE = LeaderLease.free(NO_TERM)


def vote(lease: LeaderLease, who: str, term: int, now_ms: int = 0) -> LeaderLease:
    return lease.acquired(who, f"http://{who}", term=term, ttl_ms=TTL_MS, now_ms=now_ms)


def renew(lease: LeaderLease, who: str, term: int, now_ms: int = 0) -> LeaderLease:
    return lease.renewed(who, term=term, ttl_ms=TTL_MS, now_ms=now_ms)


def follow(lease: LeaderLease, who: str, term: int, expires_at_ms: int = TTL_MS) -> LeaderLease:
    return lease.followed(who, f"http://{who}", term=term, expires_at_ms=expires_at_ms, now_ms=0)


def test_a_free_peer_votes_for_a_higher_term() -> None:
    voted = vote(FREE, A, 1)

    assert (voted.leader_id, voted.term, voted.is_observed, voted.expires_at_ms) == (A, 1, False, TTL_MS)


def test_a_peer_that_voted_refuses_another_candidate_while_the_vote_holds() -> None:
    with pytest.raises(TcLeaseActive):
        vote(vote(FREE, A, 1), B, 2)


def test_a_vote_that_ran_out_does_not_burn_its_term() -> None:
    assert vote(vote(FREE, A, 1), B, 1, now_ms=TTL_MS).leader_id == B


def test_a_vote_that_is_given_back_does_not_burn_its_term() -> None:
    released = vote(FREE, A, 3).released(A, term=3, now_ms=0)

    assert released == FREE


def test_a_term_that_was_followed_is_not_given_to_another() -> None:
    followed = renew(vote(FREE, A, 1), A, 1)

    with pytest.raises(TcLeaseActive):
        vote(followed, B, 1, now_ms=TTL_MS)
    with pytest.raises(TcLeaseActive):
        vote(followed.released(A, term=1, now_ms=0), B, 1)
    assert vote(followed, B, 2, now_ms=TTL_MS).leader_id == B


def test_a_term_below_the_current_one_is_stale_and_names_the_leader() -> None:
    followed = renew(vote(FREE, A, 5), A, 5)

    with pytest.raises(TcTermStale) as refusal:
        vote(followed, B, 4)
    assert refusal.value.leader_endpoint == "http://node-a"


def test_the_same_candidate_may_ask_again() -> None:
    assert vote(vote(FREE, A, 1), A, 1, now_ms=500).expires_at_ms == 500 + TTL_MS


@pytest.mark.parametrize(("who", "term", "now_ms"), [(B, 1, 0), (A, 2, 0), (A, 1, TTL_MS)])
def test_only_the_leader_of_this_term_renews_and_only_in_time(who: str, term: int, now_ms: int) -> None:
    with pytest.raises(TcLeaseActive):
        renew(vote(FREE, A, 1), who, term, now_ms)


def test_a_release_by_another_node_is_refused() -> None:
    with pytest.raises(TcLeaseActive):
        vote(FREE, A, 1).released(B, term=1, now_ms=0)
    with pytest.raises(TcLeaseActive):
        FREE.released("", term=0, now_ms=0)


def test_a_peer_follows_a_leader_that_another_peer_follows() -> None:
    followed = follow(vote(FREE, A, 2), B, 2)

    assert (followed.leader_id, followed.is_observed, followed.observed) == (B, True, Term(2, B))


def test_old_news_of_a_leader_changes_nothing() -> None:
    current = renew(vote(FREE, A, 5), A, 5)

    assert follow(current, B, 4) == current
    assert follow(current, B, 5) == current
    assert follow(current, B, 6, expires_at_ms=0) == current


def test_after_a_restart_a_followed_leader_comes_back_with_its_term_and_no_other_does() -> None:
    restarted = LeaderLease.free(renew(vote(FREE, A, 5), A, 5).durable_term)

    assert vote(restarted, A, 5).leader_id == A
    assert follow(restarted, A, 5).leader_id == A
    assert follow(restarted, B, 5) == restarted
    with pytest.raises(TcLeaseActive):
        vote(restarted, B, 5)


def test_after_a_restart_a_vote_is_not_given_a_second_time() -> None:
    restarted = LeaderLease.free(vote(FREE, A, 5).durable_term)

    with pytest.raises(TcLeaseActive):
        vote(restarted, B, 5)
    assert follow(restarted, B, 5).leader_id == B


NODES = st.integers(0, 2)
TERMS = st.integers(1, 3)


class Peers(RuleBasedStateMachine):
    """Three peers, any events in any order, restarts too: no two leaders are followed by quorums in one term."""

    @initialize()
    def start(self) -> None:
        self.now_ms = 0
        self.leases = [FREE] * 3
        self.stored = [NO_TERM] * 3
        self.followers: dict[int, dict[str, set[int]]] = {}

    def change(self, peer: int, lease: LeaderLease) -> None:
        before = self.leases[peer]
        assert lease.observed.number >= before.observed.number
        if lease.durable_term.is_news_to(self.stored[peer]):
            assert lease.durable_term.number >= self.stored[peer].number
            self.stored[peer] = lease.durable_term
        self.leases[peer] = lease
        if lease.is_observed:
            self.followers.setdefault(lease.term, {}).setdefault(lease.leader_id, set()).add(peer)

    @rule(peer=NODES, who=NODES, term=TERMS)
    def acquire(self, peer: int, who: int, term: int) -> None:
        try:
            self.change(peer, vote(self.leases[peer], f"node-{who}", term, self.now_ms))
        except LeaderRefusal:
            return

    @rule(peer=NODES, who=NODES, term=TERMS)
    def renew(self, peer: int, who: int, term: int) -> None:
        try:
            self.change(peer, renew(self.leases[peer], f"node-{who}", term, self.now_ms))
        except LeaderRefusal:
            return

    @rule(peer=NODES)
    def renew_what_is_held(self, peer: int) -> None:
        lease = self.leases[peer]
        if lease.is_active(self.now_ms):
            self.change(peer, renew(lease, lease.leader_id, lease.term, self.now_ms))

    @rule(peer=NODES, who=NODES, term=TERMS)
    def release(self, peer: int, who: int, term: int) -> None:
        try:
            self.change(peer, self.leases[peer].released(f"node-{who}", term=term, now_ms=self.now_ms))
        except LeaderRefusal:
            return

    @rule(peer=NODES, source=NODES)
    def follow(self, peer: int, source: int) -> None:
        told = self.leases[source]
        if told.is_observed:
            followed = self.leases[peer].followed(
                told.leader_id,
                told.endpoint,
                term=told.term,
                expires_at_ms=told.expires_at_ms,
                now_ms=self.now_ms,
            )
            self.change(peer, followed)

    @rule(peer=NODES)
    def restart(self, peer: int) -> None:
        self.leases[peer] = LeaderLease.free(self.stored[peer])

    @precondition(lambda self: self.now_ms < 20 * TTL_MS)
    @rule(step_ms=st.sampled_from((1, TTL_MS // 2, TTL_MS)))
    def pass_time(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @invariant()
    def at_most_one_has_been_followed_by_a_quorum_in_each_term(self) -> None:
        for term, followers in self.followers.items():
            quorums = [who for who, peers in followers.items() if len(peers) >= 2]
            assert len(quorums) <= 1, f"term {term}: {quorums}"

    @invariant()
    def no_peer_followed_two_in_one_term(self) -> None:
        for term, followers in self.followers.items():
            followed = [peer for peers in followers.values() for peer in peers]
            assert len(followed) == len(set(followed)), f"term {term}: {followers}"


Peers.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
test_any_order_of_events_keeps_one_leader_per_term = Peers.TestCase
