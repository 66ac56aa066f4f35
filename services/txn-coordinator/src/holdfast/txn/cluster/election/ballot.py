"""One node's questions to its peers about the leader's lease; its own keeper is asked without a detour."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.txn.cluster.election.keeper import LeaseKeeper
from holdfast.txn.cluster.election.leader_lease import LeaderLease
from holdfast.txn.cluster.election.timing import ElectionTiming
from holdfast.txn.cluster.endpoints import plain_endpoint
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerPort, PeerUnreachable
from holdfast.txn.layer.errors import LeaderRefusal

TERM_MAX: Final = (1 << 63) - 1
NODE_ID_CHARS_MAX: Final = 256
_SILENCE: Final = PeerAnswer(status=0)


@dataclass(frozen=True, slots=True)
class Node:
    """A node as its peers know it."""

    id: str
    endpoint: str


class Ballot:
    """What `node` asks of its peers. Every answer that is no clear yes is a no."""

    def __init__(self, node: Node, keeper: LeaseKeeper, port: PeerPort, timing: ElectionTiming) -> None:
        self._node = node
        self._keeper = keeper
        self._port = port
        self._timing = timing

    async def look(self, peers: Sequence[str], now_ms: int) -> int:
        """Follow the leader that a peer follows; returns the highest term that any of them has seen."""
        asked = [self._call(peer, "/v1/tc/leader") for peer in self._others(peers)]
        answers = [answer for answer in await asyncio.gather(*asked) if answer.is_ok]
        for answer in answers:
            await self._follow(answer, now_ms)
        return max((min(answer.number("term"), TERM_MAX - 1) for answer in answers), default=0)

    async def acquire(self, term: int, peers: Sequence[str], quorum: int) -> bool:
        """Whether this node and as many peers as are needed gave their votes."""
        return await self._collect(lambda peer: self._acquire(peer, term), peers, quorum)

    async def renew(
        self, term: int, peers: Sequence[str], quorum: int, on_quorum: Callable[[], None]
    ) -> bool:
        """Whether a quorum follows this node; the rest is waited for as well, since all are to hear of it."""
        return await self._collect(lambda peer: self._renew(peer, term), peers, quorum, on_quorum)

    async def release(self, term: int, peers: Sequence[str]) -> None:
        """Let go everywhere, as far as the peers can be reached."""
        await self._here(self._keeper.release(self._node.id, term=term))
        body = {"leader_id": self._node.id, "term": term}
        asked = [
            self._call(peer, "/v1/tc/lease/release", body, timeout_s=self._timing.release_s)
            for peer in self._others(peers)
        ]
        await asyncio.gather(*asked)

    async def _collect(
        self,
        ask: Callable[[str], Awaitable[bool]],
        peers: Sequence[str],
        quorum: int,
        on_quorum: Callable[[], None] | None = None,
    ) -> bool:
        """No node leads without its own vote, so this node asks itself first."""
        if not await ask(self._node.endpoint):
            return False
        count = 1
        if count == quorum and on_quorum is not None:
            on_quorum()
        asked = [asyncio.ensure_future(ask(peer)) for peer in self._others(peers)]
        try:
            async with asyncio.timeout(self._timing.round_s):
                for answer in asyncio.as_completed(asked):
                    if count >= quorum and on_quorum is None:
                        break
                    count += await answer
                    if count == quorum and on_quorum is not None:
                        on_quorum()
        except TimeoutError:
            pass  # Silence is a no.
        finally:
            for call in asked:
                call.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return count >= quorum

    async def _acquire(self, peer: str, term: int) -> bool:
        node, ttl_ms = self._node, self._timing.ttl_ms
        if peer == node.endpoint:
            return await self._here(self._keeper.acquire(node.id, node.endpoint, term=term, ttl_ms=ttl_ms))
        body = {"candidate_id": node.id, "candidate_endpoint": node.endpoint, "term": term, "ttl_ms": ttl_ms}
        answer = await self._call(peer, "/v1/tc/lease/acquire", body)
        return answer.is_ok and answer.members.get("granted") is True

    async def _renew(self, peer: str, term: int) -> bool:
        """A peer that does not know this leader is asked for its vote first; only one that follows it counts."""
        if await self._renew_once(peer, term):
            return True
        return await self._acquire(peer, term) and await self._renew_once(peer, term)

    async def _renew_once(self, peer: str, term: int) -> bool:
        node, ttl_ms = self._node, self._timing.ttl_ms
        if peer == node.endpoint:
            return await self._here(self._keeper.renew(node.id, term=term, ttl_ms=ttl_ms))
        body = {"leader_id": node.id, "term": term, "ttl_ms": ttl_ms}
        answer = await self._call(peer, "/v1/tc/lease/renew", body)
        return answer.is_ok and answer.members.get("renewed") is True

    async def _follow(self, answer: PeerAnswer, now_ms: int) -> None:
        leader_id, term = answer.text("leader_id"), answer.number("term")
        if not 0 < len(leader_id) <= NODE_ID_CHARS_MAX or not 0 < term < TERM_MAX:
            return
        if leader_id == self._node.id:
            return  # Whether this node leads it knows best itself.
        try:
            endpoint = plain_endpoint(answer.text("leader_endpoint"))
        except ValueError:
            return
        # A peer whose clock is ahead must not make the lease longer than any.
        expires_at_ms = min(answer.number("expires_at"), now_ms + self._timing.ttl_ms)
        await self._keeper.follow(leader_id, endpoint, term=term, expires_at_ms=expires_at_ms)

    async def _here(self, change: Awaitable[LeaderLease]) -> bool:
        try:
            await change
        except LeaderRefusal:
            return False
        return True

    async def _call(
        self,
        peer: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> PeerAnswer:
        try:
            return await self._port.call(peer, path, body, timeout_s=timeout_s or self._timing.round_s)
        except PeerUnreachable:
            return _SILENCE

    def _others(self, peers: Sequence[str]) -> list[str]:
        return [peer for peer in peers if peer != self._node.endpoint]
