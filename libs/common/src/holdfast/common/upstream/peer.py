"""One replica of a service: its connections, and whether it is worth trying."""

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

from pydantic_core import from_json

from holdfast.common.express.message import Header
from holdfast.common.logging import get_logger
from holdfast.common.telemetry.metrics import Counter
from holdfast.common.upstream.address import Address
from holdfast.common.upstream.connection import UpstreamConnection
from holdfast.common.upstream.errors import UpstreamError, UpstreamUnavailable
from holdfast.common.upstream.limits import UpstreamLimits
from holdfast.common.upstream.pool import Pool
from holdfast.common.upstream.port import RequestStream, UpstreamAnswer
from holdfast.common.upstream.rendezvous import seed_of

_REASON_CHARS_MAX: Final = 500
_NOT_ASKED_YET: Final = "not reached yet"

_log = get_logger("upstream.peer")

OnCalledOff = Callable[["asyncio.Future[UpstreamAnswer]"], None]
"""Is told of a call that was cancelled: the future is the answer if it was given before, or an error."""


class Peer:
    """A replica is well when it answered its last probe with 200 and no connection to it failed since.

    Failures open a short back-off, in which no call tries it; a probe that reaches it ends that at once. One
    that says that it is not ready is used only while no other replica is well.
    """

    def __init__(
        self, service: str, address: Address, limits: UpstreamLimits, tls: ssl.SSLContext | None = None
    ) -> None:
        self.service = service
        self.url = address.url
        self.seed = seed_of(address.url)
        self.pool = Pool(address, limits, tls, on_unreachable=self.note_failure)
        self.calls = Counter()
        self.failures = Counter()
        self.reason: str | None = _NOT_ASKED_YET
        self._limits = limits
        self._host_line = b"host: %b\r\n" % address.authority.encode("ascii")
        self._failures_in_a_row = 0
        self._left_alone_until_s = 0.0

    @property
    def is_well(self) -> bool:
        return self.reason is None

    @property
    def may_be_tried(self) -> bool:
        return self.reason is None or time.monotonic() >= self._left_alone_until_s

    async def exchange(
        self,
        method: str,
        target: str,
        headers: Sequence[Header] | bytes,
        body: bytes | RequestStream,
        *,
        deadline_s: float | None,
        on_called_off: OnCalledOff | None = None,
    ) -> UpstreamAnswer:
        """One request and its answer, over a connection of its own for that time."""
        self.calls.value += 1
        deadline_at_s = None if deadline_s is None else time.monotonic() + deadline_s
        head = self._render_head(method, target, headers, body)
        connection = self.pool.take_idle() or await self._take(deadline_s)
        waiter = connection.begin(head, body, is_head=method == "HEAD", deadline_at_s=deadline_at_s)
        try:
            return await waiter
        except UpstreamError as error:
            self.failures.value += 1
            _log.debug(
                "upstream.call.failed", peer=self.url, path=target.partition("?")[0], error=error.detail
            )
            raise
        except BaseException:
            # A client that hangs up in front cancels the call behind.
            if on_called_off is None:
                connection.give_up(waiter)
            elif (answer := connection.call_off(waiter)) is not None:
                on_called_off(answer)
            raise

    async def _take(self, deadline_s: float | None) -> UpstreamConnection:
        try:
            async with asyncio.timeout(deadline_s):
                return await self.pool.take()
        except TimeoutError:
            raise UpstreamUnavailable(f"no connection to {self.url} in time", retry_after_s=1) from None

    def _render_head(
        self, method: str, target: str, headers: Sequence[Header] | bytes, body: bytes | RequestStream
    ) -> bytes:
        lines = (
            headers
            if isinstance(headers, bytes)
            else b"".join([b"%b: %b\r\n" % header for header in headers])
        )
        if isinstance(body, bytes):
            length = b"content-length: %d\r\n" % len(body) if body or method not in ("GET", "HEAD") else b""
        elif body.size_bytes is None:
            length = b"transfer-encoding: chunked\r\n"
        else:
            length = b"content-length: %d\r\n" % body.size_bytes
        return b"%b %b HTTP/1.1\r\n%b%b%b\r\n" % (
            method.encode("ascii"),
            target.encode("ascii"),
            self._host_line,
            lines,
            length,
        )

    # Health.

    def note_failure(self, reason: str) -> None:
        """It cannot be reached: leave it alone for a moment, longer each time."""
        self.failures.value += 1
        limits = self._limits
        pause_s = min(limits.backoff_s_max, limits.backoff_s * 2.0 ** min(self._failures_in_a_row, 16))
        self._failures_in_a_row += 1
        self._left_alone_until_s = time.monotonic() + pause_s * random.uniform(0.5, 1.0)
        self._tell(reason)

    async def probe(self, path: str) -> None:
        """Ask it whether it is ready."""
        try:
            answer = await self.exchange("GET", path, (), b"", deadline_s=self._limits.probe_timeout_s)
        except UpstreamUnavailable:
            return  # Noted where it happened.
        except UpstreamError as error:
            self.note_failure(error.detail)
            return
        if answer.stream is not None:
            await answer.stream.aclose()
        if answer.status == 200:
            self._failures_in_a_row = 0
            self._tell(None)
        else:
            # It is there: if no replica is well it is still asked, because one that can not write may read.
            self._failures_in_a_row = 0
            self._left_alone_until_s = 0.0
            self._tell(_detail_of(answer))

    def _tell(self, reason: str | None) -> None:
        before, self.reason = self.reason, reason
        if reason is None and before is not None:
            _log.info("upstream.peer.found", service=self.service, peer=self.url)
        elif reason is not None and before is None:
            _log.warn("upstream.peer.lost", service=self.service, peer=self.url, reason=reason)


def _detail_of(answer: UpstreamAnswer) -> str:
    """What the replica itself says of why it is not ready."""
    try:
        members = from_json(answer.body)
    except ValueError:
        members = None
    detail = members.get("detail") if isinstance(members, dict) else None
    text = detail if isinstance(detail, str) else f"answers {answer.status}"
    return text[:_REASON_CHARS_MAX]
