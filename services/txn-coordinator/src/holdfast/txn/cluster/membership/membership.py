"""Who belongs to the cluster: this node says so again and again, hears the others, and tells the election.

No node speaks for another: an identity comes from the certificate a node shows, and it announces only itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.storage.errors import StorageError
from holdfast.txn.cluster.election.timing import ElectionTiming
from holdfast.txn.cluster.endpoints import plain_endpoints
from holdfast.txn.cluster.errors import ClusterSyncFailed, ClusterUnavailable
from holdfast.txn.cluster.membership.records import MEMBERS_MAX, MemberTable, Roster
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerPort, PeerUnreachable, Role

ANNOUNCE: Final = "/v1/tc/cluster/announce"
LEAVE: Final = "/v1/tc/cluster/leave"
LEAVE_FANOUT: Final = "X-Lockd-TC-Leave-Fanout"

_CALL_S: Final = 5.0
_JOIN_TRIES: Final = 5
_JOIN_PAUSE_S: Final = 1.0

_log = get_logger("tc.cluster.membership")

SetPeers = Callable[[Sequence[str], int | None], None]


class JoinFailed(HoldfastError):
    """None of the nodes to join has accepted this one; the start is given up."""

    code, status = "tc_join_failed", 503


class Membership:
    """One node's view of the cluster. Without an endpoint it only keeps what others announce to it."""

    def __init__(
        self,
        table: MemberTable,
        port: PeerPort,
        *,
        identity: str,
        endpoint: str,
        seeds: Sequence[str],
        timing: ElectionTiming,
        now_ms: Callable[[], int],
        fixed_quorum: int = 0,
        set_peers: SetPeers,
    ) -> None:
        self._table = table
        self._port = port
        self._identity = identity
        self._endpoint = endpoint
        self._seeds = seeds
        self._timing = timing
        self._now_ms = now_ms
        self._fixed_quorum = fixed_quorum
        self._set_peers = set_peers
        self._heard: tuple[str, ...] = ()
        self._seeds_until_ms = now_ms() + int(timing.member_ttl_s * 1000)
        self._is_away = False
        self._has_silent_peers = False
        self._wake = asyncio.Event()
        self.peers: tuple[str, ...] = ()
        """Every node that takes part now, this one included."""

    @property
    def others(self) -> list[str]:
        return [peer for peer in self.peers if peer != self._endpoint]

    async def roster(self) -> Roster:
        try:
            return await self._table.roster(self._now_ms())
        except StorageError as error:
            raise ClusterUnavailable(f"the membership can't be read: {error.detail}") from error

    async def announce(self, identity: str, endpoint: str) -> tuple[Roster, int]:
        """A node is there; returns all that are, and until when this one counts."""
        try:
            expires_at_ms = await self._table.announce(identity, endpoint, self._now_ms())
        except StorageError as error:
            raise ClusterUnavailable(f"the membership can't be written: {error.detail}") from error
        if identity == self._identity:
            self._is_away = False
        return await self._synced(), expires_at_ms

    async def leave(self, identity: str, *, is_fanned_out: bool) -> Roster:
        """A node goes. When it is this one, all the others are told first; if one can't be, it stays."""
        if identity == self._identity and not is_fanned_out:
            await self._tell_leave()
        try:
            await self._table.leave(identity, self._now_ms())
        except StorageError as error:
            self._come_back()
            raise ClusterUnavailable(f"the membership can't be written: {error.detail}") from error
        return await self._synced()

    async def join(self) -> None:
        """Be accepted by at least one of the others; raises JoinFailed."""
        others = [seed for seed in self._seeds if seed != self._endpoint]
        await self._table.announce(self._identity, self._endpoint, self._now_ms())
        for tries_left in reversed(range(_JOIN_TRIES)):
            self._heard = await self._announce_to(others)
            if not others or len(others) < len(self._seeds) or self._heard:
                break
            if tries_left == 0:
                raise JoinFailed(
                    f"none of {', '.join(others)} accepts this node; are they running, and of this CA?"
                )
            await asyncio.sleep(_JOIN_PAUSE_S)
        await self._sync()

    async def run(self) -> None:
        """Announce this node for as long as it is there; a new member is answered at once."""
        while True:
            self._wake.clear()
            try:
                await self._go_round()
            except HoldfastError as error:
                _log.warn("tc.cluster.failed", error=error.code, detail=error.detail)
            # A node that is starting accepts before it listens, and is to hear of the others soon after.
            pause_s = self._timing.retry_s if self._has_silent_peers else self._timing.member_ttl_s / 3
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def part(self) -> None:
        """The way down: tell every member that can be reached."""
        self._is_away = True
        calls = [self._call(peer, LEAVE, {}, {LEAVE_FANOUT: "1"}) for peer in self.others]
        await asyncio.gather(*calls)
        await self._table.leave(self._identity, self._now_ms())

    async def _go_round(self) -> None:
        if not self._is_away:
            await self._table.announce(self._identity, self._endpoint, self._now_ms())
            roster = await self._table.roster(self._now_ms())
            self._heard = await self._announce_to(
                {*roster.endpoints, *self._seeds, *self._heard} - {self._endpoint}
            )
        await self._sync()

    async def _announce_to(self, targets: "set[str] | list[str]") -> tuple[str, ...]:
        """Announce this node to these and to whomever they name; returns all that were named by one that accepted."""
        self._has_silent_peers = False
        told: set[str] = {self._endpoint}
        heard: set[str] = set()
        waiting = set(targets) - told
        while waiting and len(told) < MEMBERS_MAX:
            told |= waiting
            body = {"self_endpoint": self._endpoint}
            answers = await asyncio.gather(*(self._call(peer, ANNOUNCE, body) for peer in sorted(waiting)))
            for answer in answers:
                heard |= set(plain_endpoints(answer.texts("endpoints"))) if answer.is_ok else set()
                self._has_silent_peers |= answer.status == 0
            waiting = heard - told
        return tuple(sorted(heard))[:MEMBERS_MAX]

    async def _tell_leave(self) -> None:
        self._is_away = True
        others = self.others
        answers = await asyncio.gather(*(self._call(peer, LEAVE, {}, {LEAVE_FANOUT: "1"}) for peer in others))
        silent = [peer for peer, answer in zip(others, answers, strict=True) if not answer.is_ok]
        if silent:
            self._come_back()
            raise ClusterUnavailable(f"these members could not be told: {', '.join(silent)}; this node stays")
        self._heard = ()

    def _come_back(self) -> None:
        self._is_away = False
        self._wake.set()  # Those that were told already hear that it is not so.

    async def _synced(self) -> Roster:
        try:
            return await self._sync()
        except StorageError as error:
            raise ClusterSyncFailed(f"stored, but the members can't be read: {error.detail}") from error

    async def _sync(self) -> Roster:
        """Tell the election who votes. Members that were never seen before are answered soon."""
        roster = await self._table.roster(self._now_ms())
        if self._endpoint:
            self._vote_among(roster)
        return roster

    def _vote_among(self, roster: Roster) -> None:
        present = set(roster.endpoints) | set(self._heard)
        if self._is_away:
            present.discard(self._endpoint)
        elif not roster.endpoints or self._now_ms() < self._seeds_until_ms:
            # Nodes that start at the same time hear of each other late: none may take itself for the whole cluster.
            present |= {*self._seeds, self._endpoint}
        peers = tuple(sorted(present))
        if set(peers) - set(self.peers):
            self._wake.set()
        self.peers = peers
        quorum = roster.quorum(self._fixed_quorum, len(peers)) if self._fixed_quorum else None
        self._set_peers(peers, quorum)

    async def _call(
        self, peer: str, path: str, body: dict[str, str], headers: dict[str, str] | None = None
    ) -> PeerAnswer:
        try:
            answer = await self._port.call(
                peer, path, body, timeout_s=_CALL_S, role=Role.SERVER, headers=headers
            )
        except PeerUnreachable as error:
            _log.debug("tc.cluster.unreachable", endpoint=peer, path=path, reason=str(error))
            return PeerAnswer(status=0)
        if not answer.is_ok:
            _log.debug("tc.cluster.refused", endpoint=peer, path=path, error=answer.text("error"))
        return answer
