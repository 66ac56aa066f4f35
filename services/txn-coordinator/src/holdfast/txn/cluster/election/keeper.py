"""The leader's lease as this node keeps it for its peers: one change at a time, its term durable before the answer."""

import asyncio
from collections.abc import Callable

from holdfast.txn.cluster.election.leader_lease import LeaderLease
from holdfast.txn.cluster.election.terms import Term, Terms


class LeaseKeeper:
    """A peer of the election. `now_ms` is Unix time that does not jump."""

    def __init__(self, terms: Terms, now_ms: Callable[[], int], term_stored: Term) -> None:
        self._terms = terms
        self._now_ms = now_ms
        self._lease = LeaderLease.free(term_stored)
        self._term_stored = term_stored
        self._lock = asyncio.Lock()

    @classmethod
    async def opened(cls, terms: Terms, now_ms: Callable[[], int]) -> "LeaseKeeper":
        return cls(terms, now_ms, await terms.highest())

    @property
    def current(self) -> LeaderLease:
        return self._lease.normalized(self._now_ms())

    async def acquire(self, candidate_id: str, endpoint: str, *, term: int, ttl_ms: int) -> LeaderLease:
        return await self._change(
            lambda lease, now_ms: lease.acquired(
                candidate_id, endpoint, term=term, ttl_ms=ttl_ms, now_ms=now_ms
            )
        )

    async def renew(self, leader_id: str, *, term: int, ttl_ms: int) -> LeaderLease:
        return await self._change(
            lambda lease, now_ms: lease.renewed(leader_id, term=term, ttl_ms=ttl_ms, now_ms=now_ms)
        )

    async def release(self, leader_id: str, *, term: int) -> LeaderLease:
        return await self._change(lambda lease, now_ms: lease.released(leader_id, term=term, now_ms=now_ms))

    async def follow(self, leader_id: str, endpoint: str, *, term: int, expires_at_ms: int) -> LeaderLease:
        return await self._change(
            lambda lease, now_ms: lease.followed(
                leader_id, endpoint, term=term, expires_at_ms=expires_at_ms, now_ms=now_ms
            )
        )

    async def _change(self, change: Callable[[LeaderLease, int], LeaderLease]) -> LeaderLease:
        async with (
            self._lock
        ):  # A second candidate must not be judged while the first one's term is being written.
            lease = change(self._lease, self._now_ms())
            term = lease.durable_term
            if term.is_news_to(self._term_stored):
                await self._terms.raise_to(term)
                self._term_stored = term
            self._lease = lease
            return lease
