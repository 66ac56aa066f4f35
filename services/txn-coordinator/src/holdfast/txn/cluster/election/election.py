"""The election: one node's part in finding the leader, and its time as the leader.

    follows --its leader's lease ends--> stands --a quorum votes, then follows--> leads --no quorum until its time is over--> stands
                                         stands --hears of a leader--> follows

A leader's time counts from before it asked, its peers' from when they were asked: it stops deciding before any of them
would vote for another.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.txn.cluster.election.ballot import Ballot, Node
from holdfast.txn.cluster.election.keeper import LeaseKeeper
from holdfast.txn.cluster.election.leader_lease import LeaderLease
from holdfast.txn.cluster.election.timing import ElectionTiming
from holdfast.txn.cluster.leadership import Leader
from holdfast.txn.cluster.peers.port import PeerPort

_log = get_logger("tc.leader")


@dataclass(slots=True)
class _Reign:
    term: int
    until_ms: int
    peers: tuple[str, ...]
    """Who was asked last, and so is to be told of the end."""


class Election:
    """The `Leadership` of a node with peers. `now_ms` is Unix time that does not jump."""

    is_clustered = True

    def __init__(
        self,
        node: Node,
        keeper: LeaseKeeper,
        port: PeerPort,
        *,
        now_ms: Callable[[], int],
        random: Random,
        timing: ElectionTiming,
    ) -> None:
        self.node = node
        self._keeper = keeper
        self._ballot = Ballot(node, keeper, port, timing)
        self.now_ms = now_ms
        self._random = random
        self._timing = timing
        self._peers: tuple[str, ...] = ()
        self._quorum = 1
        self._reign: _Reign | None = None
        self._failures = 0
        self._is_first_try = True
        self._wake = asyncio.Event()

    def term(self) -> int | None:
        reign = self._reign
        return reign.term if reign is not None and self.now_ms() < reign.until_ms else None

    def leader(self) -> Leader | None:
        term = self.term()
        if term is not None:
            return Leader(self.node.endpoint, term)
        lease = self.lease()
        if not lease.is_observed or not lease.is_active(self.now_ms()):
            return None
        return Leader(lease.endpoint, lease.term)

    def lease(self) -> LeaderLease:
        """The leader's lease as peers may be told of it: this node's own word for itself is not enough."""
        lease = self._keeper.current
        if lease.leader_id != self.node.id:
            return lease
        if self.term() is None or self._reign is None:
            return replace(lease, is_observed=False)
        return replace(lease, expires_at_ms=min(lease.expires_at_ms, self._reign.until_ms))

    def set_peers(self, peers: Sequence[str], quorum: int | None = None) -> None:
        """Who votes; without this node among them it takes no part. The quorum is more than half, or as given."""
        voters = tuple(sorted(set(peers)))
        needed = quorum or len(voters) // 2 + 1
        if (voters, needed) != (self._peers, self._quorum):
            self._peers, self._quorum = voters, needed
            self._wake.set()

    async def released(self, leader_id: str, term: int) -> None:
        """A leader or a candidate lets go: another node should stand, and need not wait for the end of its lease."""
        await self._keeper.release(leader_id, term=term)
        self._wake.set()

    async def run(self) -> None:
        """Take part until cancelled."""
        while True:
            self._wake.clear()
            try:
                pause_s = await self._step()
            except HoldfastError as error:  # The store, which has to keep the terms.
                _log.warn("tc.election.failed", error=error.code, detail=error.detail)
                pause_s = self._backoff_s()
            await self._pause(pause_s)

    async def resign(self) -> None:
        """Stop leading and tell the peers, so that another one need not wait for the end of the lease."""
        reign, self._reign = self._reign, None
        if reign is not None:
            _log.info("tc.leader.stepped_down", term=reign.term)
            await self._ballot.release(reign.term, reign.peers)

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _step(self) -> float:
        """Do what is due; returns how long to wait unless something happens."""
        if self.node.endpoint not in self._peers:
            await self.resign()
            return self._timing.renew_s
        if self._reign is not None:
            return await self._renew(self._reign)
        followed_s = self._followed_s()
        if followed_s > 0:
            self._is_first_try, self._failures = True, 0
            return min(self._timing.renew_s, followed_s)
        if self._is_first_try:
            self._is_first_try = False
            return self._timing.skew_s * self._peers.index(self.node.endpoint) / len(self._peers)
        return await self._stand()

    def _followed_s(self) -> float:
        """How long the leader that this node follows still has."""
        lease = self._keeper.current
        if not lease.is_observed or lease.leader_id == self.node.id:
            return 0.0
        return (lease.expires_at_ms - self.now_ms()) / 1000

    async def _stand(self) -> float:
        seen = await self._ballot.look(self._peers, self.now_ms())
        if self._followed_s() > 0:
            return 0.0
        if self._keeper.current.is_active(self.now_ms()) and self._keeper.current.leader_id != self.node.id:
            return self._backoff_s()  # Its vote is given; that candidate may yet become the leader.
        term = max(seen, self._keeper.current.term) + 1
        peers, quorum = self._peers, self._quorum
        if await self._ballot.acquire(term, peers, quorum) and await self._confirm(term, peers, quorum):
            _log.info("tc.leader.elected", term=term, endpoint=self.node.endpoint, quorum=quorum)
            self._failures = 0
            return self._timing.renew_s
        await self._ballot.release(term, peers)
        return self._backoff_s()

    async def _confirm(self, term: int, peers: tuple[str, ...], quorum: int) -> bool:
        """Votes alone may be forgotten and given to another; a quorum that follows can't be.

        So the reign begins with the first renewal, and a peer that only voted never counts.
        """
        until_ms = self.now_ms() + self._timing.ttl_ms

        def reign() -> None:
            self._reign = _Reign(term, until_ms, peers)

        return await self._ballot.renew(term, peers, quorum, reign)

    async def _renew(self, reign: _Reign) -> float:
        began_ms = self.now_ms()
        if began_ms >= reign.until_ms:
            _log.warn("tc.leader.renew.failed", term=reign.term, quorum=self._quorum)
            await self.resign()
            return self._backoff_s()

        def extend() -> None:
            reign.until_ms = began_ms + self._timing.ttl_ms

        reign.peers = self._peers
        is_renewed = await self._ballot.renew(reign.term, reign.peers, self._quorum, extend)
        next_ms = began_ms + int(1000 * (self._timing.renew_s if is_renewed else self._timing.retry_s))
        return max(0.0, (min(next_ms, reign.until_ms) - self.now_ms()) / 1000)

    def _backoff_s(self) -> float:
        self._failures += 1
        return self._timing.backoff_s(self._failures, self._random.random())
