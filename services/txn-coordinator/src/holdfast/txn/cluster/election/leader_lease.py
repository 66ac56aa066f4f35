"""What one peer knows of the leader: whom it voted for or follows, under which term, until when. Pure, no clock.

    free --acquire--> voted --renew--> followed --release or time--> free, the term stays
                      voted --release or time--> free, the term falls back to the last one followed

A vote that never became a leader does not burn its term. A peer that once followed a leader in a term follows no other
else in it, not even after a restart, and a leader counts only peers that follow it: for two leaders of one term there
would have to be a peer that followed both.
"""

from dataclasses import dataclass, replace

from holdfast.txn.cluster.election.terms import NO_TERM, Term
from holdfast.txn.cluster.errors import TcLeaseActive
from holdfast.txn.layer.errors import TcTermStale


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """One state; every event makes another one or is refused."""

    leader_id: str = ""
    endpoint: str = ""
    term: int = 0
    expires_at_ms: int = 0
    is_observed: bool = False
    """Renewed, or learned from another peer: not a mere vote."""
    observed: Term = NO_TERM
    """The last term followed, and whom."""

    @classmethod
    def free(cls, term: Term) -> "LeaderLease":
        """Held by no node, after this term: what a node begins with, having read the term from its store."""
        return cls(term=term.number, observed=term)

    @property
    def durable_term(self) -> Term:
        """What must be durable before any node is told of this state."""
        return self.observed if self.is_observed or not self.leader_id else Term(self.term)

    def is_active(self, now_ms: int) -> bool:
        return bool(self.leader_id) and self.expires_at_ms > now_ms

    def is_of(self, leader_id: str, term: int) -> bool:
        return self.leader_id == leader_id and self.term == term

    def normalized(self, now_ms: int) -> "LeaderLease":
        """The same without a vote that ran out."""
        if self.is_observed or not self.leader_id or self.is_active(now_ms):
            return self
        return LeaderLease.free(self.observed)

    def acquired(
        self, candidate_id: str, endpoint: str, *, term: int, ttl_ms: int, now_ms: int
    ) -> "LeaderLease":
        """A vote for this candidate."""
        now = self.normalized(now_ms)
        if term < now.term:
            raise TcTermStale(
                f"term {term} is below the current term {now.term}", now._leader_endpoint(now_ms)
            )
        if now.is_of(candidate_id, term):
            return replace(now, endpoint=endpoint, expires_at_ms=now_ms + ttl_ms)
        # A leader whose peer was restarted, or lost sight of it, comes back with the term it has.
        is_return = now.observed == (term, candidate_id)
        if now.is_active(now_ms) or (term == now.term and not is_return):
            raise now._active(now_ms)
        return LeaderLease(candidate_id, endpoint, term, now_ms + ttl_ms, False, now.observed)

    def renewed(self, leader_id: str, *, term: int, ttl_ms: int, now_ms: int) -> "LeaderLease":
        """Follow the one that was voted for, or go on following it."""
        if not self.is_of(leader_id, term) or not self.is_active(now_ms):
            raise self.normalized(now_ms)._active(now_ms)
        return replace(self, expires_at_ms=now_ms + ttl_ms, is_observed=True, observed=Term(term, leader_id))

    def released(self, leader_id: str, *, term: int, now_ms: int) -> "LeaderLease":
        now = self.normalized(now_ms)
        if not now.leader_id or not now.is_of(leader_id, term):
            raise now._active(now_ms)
        return LeaderLease.free(now.observed)

    def followed(
        self, leader_id: str, endpoint: str, *, term: int, expires_at_ms: int, now_ms: int
    ) -> "LeaderLease":
        """Follow a leader that another peer follows; unchanged when that is old news."""
        now = self.normalized(now_ms)
        if term < now.term or expires_at_ms <= now_ms:
            return now
        if term == now.observed.number and now.observed.leader_id not in ("", leader_id):
            return now
        if now.is_of(leader_id, term):
            expires_at_ms = max(expires_at_ms, now.expires_at_ms)
        return LeaderLease(leader_id, endpoint, term, expires_at_ms, True, Term(term, leader_id))

    def _leader_endpoint(self, now_ms: int) -> str:
        return self.endpoint if self.is_observed and self.is_active(now_ms) else ""

    def _active(self, now_ms: int) -> TcLeaseActive:
        who = "is held by another node" if self.is_active(now_ms) else "is not this node's"
        return TcLeaseActive(
            f"the leader's lease {who}; the current term is {self.term}", self._leader_endpoint(now_ms)
        )
