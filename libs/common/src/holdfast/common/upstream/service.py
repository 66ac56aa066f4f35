"""A service in other processes: picks the replica, tries again where that is safe, watches over all of them."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from holdfast.common.express.message import Header
from holdfast.common.logging import get_logger
from holdfast.common.telemetry.metrics import Counter
from holdfast.common.upstream.errors import UpstreamBroken, UpstreamError, UpstreamUnavailable
from holdfast.common.upstream.limits import DEFAULT_UPSTREAM_LIMITS, UpstreamLimits
from holdfast.common.upstream.peer import OnCalledOff, Peer
from holdfast.common.upstream.port import RequestStream, UpstreamAnswer
from holdfast.common.upstream.rendezvous import home, ranked

_TICK_S: Final = 0.1

_log = get_logger("upstream.service")


class ServiceClient:
    """The `Upstream` of one service. Used inside `running`, which probes its replicas and ends late calls.

    `probe_path` is `/readyz` for a proxy. Services that need each other ask for `/healthz`:
    two that wait for the other to be ready would wait for ever.
    """

    def __init__(
        self,
        service: str,
        peers: Sequence[Peer],
        *,
        probe_path: str = "/readyz",
        limits: UpstreamLimits = DEFAULT_UPSTREAM_LIMITS,
    ) -> None:
        assert peers, f"no replica of {service} was named"
        self.service = service
        self.peers = peers
        self.retries = Counter()
        self._seeds = [peer.seed for peer in peers]
        self._probe_path = probe_path
        self._limits = limits
        self._turn = 0

    async def call(
        self,
        method: str,
        target: str,
        headers: Sequence[Header] | bytes = (),
        body: bytes | RequestStream = b"",
        *,
        deadline_s: float | None,
        affinity: bytes = b"",
        is_repeatable: bool = False,
        on_called_off: OnCalledOff | None = None,
    ) -> UpstreamAnswer:
        """See `Upstream.call`; headers may also be lines that are rendered already.

        With `on_called_off` a cancelled call is not dropped: the service is asked to stop, see `CALL_OFF`.
        """
        started_s = time.monotonic()
        tried: list[Peer] = []
        attempts = 0
        left_s = deadline_s
        while True:
            try:
                peer = self._choose(affinity, tried)
                tried.append(peer)
                return await peer.exchange(
                    method, target, headers, body, deadline_s=left_s, on_called_off=on_called_off
                )
            except UpstreamError as error:
                attempts += 1
                pause_s = self._pause_s(attempts)
                if deadline_s is not None:
                    left_s = deadline_s - (time.monotonic() - started_s) - pause_s
                is_too_late = attempts >= self._limits.attempts_max or (left_s is not None and left_s <= 0)
                if is_too_late or not _may_repeat(error, body, is_repeatable=is_repeatable):
                    raise
            self.retries.value += 1
            await asyncio.sleep(pause_s)

    def home_of(self, affinity: bytes) -> int:
        """Which replica the calls of an affinity go to while it is well."""
        return home(self._seeds, affinity)

    def _pause_s(self, attempts: int) -> float:
        most_s = min(self._limits.retry_pause_s_max, self._limits.retry_pause_s * 2.0 ** (attempts - 1))
        return most_s * random.uniform(0.5, 1.0)

    def _choose(self, affinity: bytes, tried: Sequence[Peer]) -> Peer:
        """The home of the affinity, or who takes its place while it is not well; any replica without one."""
        peers = self.peers
        if len(peers) == 1:
            order = peers
        elif affinity and not tried and (peer := peers[home(self._seeds, affinity)]).is_well:
            return peer
        else:
            order = [peers[position] for position in self._order(affinity)]
        fresh = [peer for peer in order if peer not in tried] or order
        chosen = next((peer for peer in fresh if peer.is_well), None)
        if chosen is None:
            chosen = next((peer for peer in fresh if peer.may_be_tried), None)
        if chosen is None:
            # All of them failed a moment ago: a call must not wait for a dead machine.
            raise UpstreamUnavailable(f"{self.service} is not there: {self.reason}", retry_after_s=1)
        return chosen

    def _order(self, affinity: bytes) -> list[int]:
        if affinity:
            return ranked(self._seeds, affinity)
        self._turn = (self._turn + 1) % len(self.peers)
        return [*range(self._turn, len(self.peers)), *range(self._turn)]

    async def problem(self) -> str | None:
        """See `Upstream.problem`."""
        return self.reason

    @property
    def reason(self) -> str | None:
        """Why no replica is well; None when one is."""
        if any(peer.is_well for peer in self.peers):
            return None
        return "; ".join(f"{peer.url}: {peer.reason}" for peer in self.peers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch over the replicas for the length of the block; every connection is closed at its end."""
        name = f"upstream.{self.service}"
        tasks = [
            asyncio.create_task(self._sweep(), name=f"{name}.sweep"),
            *(asyncio.create_task(self._probe(peer), name=f"{name}.probe") for peer in self.peers),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            for peer in self.peers:
                peer.pool.close()

    async def _sweep(self) -> None:
        while True:
            now_s = time.monotonic()
            for peer in self.peers:
                peer.pool.sweep(now_s)
            await asyncio.sleep(_TICK_S)

    async def _probe(self, peer: Peer) -> None:
        while True:
            try:
                await peer.probe(self._probe_path)
            except Exception as error:  # noqa: BLE001 - the edge of this task, which must go on asking
                _log.error("upstream.probe.failed", peer=peer.url, exception=error)
            pause_s = self._limits.probe_interval_s * random.uniform(0.75, 1.25)
            await asyncio.sleep(pause_s)


def _may_repeat(error: UpstreamError, body: bytes | RequestStream, *, is_repeatable: bool) -> bool:
    """Nothing was sent, or sending it twice does no harm."""
    if isinstance(error, UpstreamUnavailable):
        return True
    return is_repeatable and isinstance(error, UpstreamBroken) and isinstance(body, bytes)
