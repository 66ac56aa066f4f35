"""One connection of the express lane from its first byte to its last: how it begins, is too slow, is refused and ends.

Many connections carry a single request, so one is a small object: what only some of them need (the parser, the worker, the
addresses) is made when it is needed.
"""

import asyncio
from collections import deque
from typing import Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from holdfast.common.errors import HoldfastError, RequestTimeout, TooManyConnections
from holdfast.common.express.execution import Worker
from holdfast.common.express.hang_up import is_peer_gone
from holdfast.common.express.lane import Lane
from holdfast.common.express.message import AnyAnswer, Header, Request, render
from holdfast.common.express.route import Route
from holdfast.common.ids import correlation_id_of
from holdfast.common.security.principal import Principal

# Plain numbers, not an Enum: they are compared several times per request.
IDLE: Final = 0
HEAD: Final = 1
BODY: Final = 2
REFUSED: Final = 3

Job = tuple[Route, Request, bool]

_PROBE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBE_ANSWER_S: Final = 0.01
"""The lane looks at half-closed connections only now and then; until it does, a waiting client counts as there."""


class HttpConnection(asyncio.Protocol):
    """What is true of a connection for every request. It is its own flow control, in both directions.

    `lane` and `server_state` are of the class that one server makes its connections from.
    """

    __slots__ = (
        "_body",
        "_client",
        "_close_at_s",
        "_is_busy",
        "_is_endless",
        "_is_eof",
        "_is_peer_finished",
        "_is_probed",
        "_is_streaming",
        "_is_tls",
        "_limits",
        "_parser",
        "_phase",
        "_queue",
        "_quiet_bytes",
        "_refusal",
        "_route",
        "_running",
        "_since_s",
        "_unparsed",
        "_unparsed_from",
        "_worker",
        "_writable",
        "_write_paused_s",
        "cycle",
        "headers",
        "loop",
        "principal",
        "read_paused",
        "transport",
        "url",
        "write_paused",
    )

    lane: Lane
    server_state: ServerState
    transport: asyncio.Transport

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser | None = None
        self._worker: Worker[AnyAnswer | None] | None = None
        self._client: tuple[str, int] | None = None
        self.url = b""
        self.headers: list[Header] = []
        self.principal: Principal | None = None
        self.cycle: RequestResponseCycle | None = None
        self.read_paused = False
        self.write_paused = False
        self._writable: asyncio.Event | None = None
        self._is_tls = False
        self._limits = self.lane.limits
        self._phase = IDLE
        self._since_s = self.lane.now_s
        self._quiet_bytes = 0
        self._write_paused_s = 0.0
        self._is_busy = False
        self._is_eof = False
        self._is_peer_finished = False
        self._is_probed = False
        self._is_streaming = False
        self._is_endless = False
        self._close_at_s: float | None = None
        self._running: RequestResponseCycle | None = None
        self._queue: deque[Job | RequestResponseCycle] = deque()
        self._unparsed = b""
        self._unparsed_from = 0
        self._refusal: HoldfastError | None = None
        self._route: Route | None = None
        self._body: bytes | bytearray = b""

    @property
    def _http(self) -> httptools.HttpRequestParser:
        """The parser of all but the plainest requests."""
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
            # What follows a last request is dropped by `_take_next`, and is no error.
            parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def client(self) -> tuple[str, int] | None:
        """The address of the other side."""
        if self._client is None:
            self._client = get_remote_addr(self.transport)
        return self._client

    def on_response_complete(self) -> None:
        """An answer is out."""
        raise NotImplementedError

    # Flow control.

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._write_paused_s = self.lane.now_s
        self.write_paused = True
        if self._writable is not None:
            self._writable.clear()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()

    async def drain(self) -> None:
        """Return when the client has taken enough of its answers, or is gone."""
        if self.write_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    # It begins and ends.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        lane = self.lane
        lane.connections.add(self)
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            self._is_tls = True
            certificate: bytes | None = ssl_object.getpeercert(True)
            self.principal = Principal.of_certificate(certificate)
            accepts = lane.accepts_peer
            # Where a certificate is required, the handshake has refused those without one.
            if accepts is not None and certificate is not None and not accepts(certificate):
                self._phase = REFUSED
                self.transport.abort()
                return
        if len(lane.connections) > self._limits.connections_max:
            self._refuse(
                TooManyConnections("the server has too many connections; try again", retry_after_s=1)
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self.lane.forget(self)
        self._phase = REFUSED
        self._unparsed = b""
        for item in (self._running, *self._queue):
            if isinstance(item, RequestResponseCycle) and not item.response_complete:
                item.disconnected = True
                item.message_event.set()
        if (cycle := self.cycle) is not None:
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        self._queue.clear()
        self.cycle = self._running = self._parser = (
            None  # They refer to this connection, and it should go by itself.
        )
        if (worker := self._worker) is not None:
            self._worker = None
            self.lane.give_back(worker)
        if self._writable is not None:
            self.write_paused = False
            self._writable.set()

    def eof_received(self) -> bool:
        """A client may close its sending side and still wait for the answer, or be gone: only a write can tell."""
        if not self._is_busy or self._refusal is not None or self._is_tls:
            return False  # Nothing to wait for, or TLS, which knows no half-closed connection.
        if self._is_endless:
            self.transport.abort()
            return False
        self._is_eof = True
        self._close_at_s = self.lane.now_s + self._limits.half_close_grace_s
        self._doubt_peer()
        return True

    def peer_finished(self) -> None:
        """The same, while nothing is read because requests wait for the one that runs, or did. A body that is read slowly, or
        answers that the client takes slowly, need no doubt: the end is read when they are through, unless the next request
        has been waiting behind them."""
        self._is_peer_finished = True
        if not self._is_busy or self._refusal is not None or self._is_tls or self.write_paused:
            return
        if self._is_endless:
            self.transport.abort()
        elif (self._queue or self._phase == IDLE) and not self._has_begun_answer:
            self._close_at_s = self.lane.now_s + self._limits.half_close_grace_s
            self._doubt_peer()

    def _doubt_finished_peer(self) -> None:
        """The next request begins, and stands in front of an end that was told of, once, and is read after its answer."""
        is_in_doubt = self._is_peer_finished and self._close_at_s is None
        if is_in_doubt and self._is_busy and not self.transport.is_closing():
            self._close_at_s = self.lane.now_s + self._limits.half_close_grace_s
            self._doubt_peer()

    def _renew_grace(self) -> None:
        """The next request of a half-closed client has as much time as the one before it."""
        if self._close_at_s is not None:
            self._close_at_s = self.lane.now_s + self._limits.half_close_grace_s

    @property
    def _has_begun_answer(self) -> bool:
        return self._is_streaming or (self._running is not None and self._running.response_started)

    def _doubt_peer(self) -> None:
        """Look whether the client is there, now and from time to time."""
        self.lane.half_closed.add(self)
        if not self._is_probed and not self._has_begun_answer and self._http.get_http_version() != "1.0":
            # A 1xx answer is nothing to a client that waits, and brings a reset from one that is gone. The end of its input
            # may be noticed twice, while reading is paused and when it is read: one for each request is enough.
            self._is_probed = True
            self.transport.write(_PROBE)
            self.loop.call_later(_PROBE_ANSWER_S, self.check_half_closed, self.lane.now_s)

    def check_half_closed(self, now_s: float) -> None:
        """Cancel the work of a client that closed its sending side and then went away, or waits for too long."""
        if is_peer_gone(self.transport) or (self._close_at_s is not None and now_s >= self._close_at_s):
            self.transport.abort()

    def shutdown(self) -> None:
        """Finish what runs, then close; an idle connection gets a moment for a request that is on its way."""
        last = self._queue[-1] if self._queue else self._running
        if isinstance(last, RequestResponseCycle):
            last.keep_alive = False
        self._since_s = self.lane.now_s

    def sweep(self, now_s: float) -> None:
        """Called a few times a second: is this connection too slow for its phase?"""
        limits = self._limits
        waited_s = now_s - self._since_s
        if self._close_at_s is not None:
            if now_s >= self._close_at_s:
                self.transport.abort()
        elif self.transport.is_closing():
            self._close_at_s = (
                now_s + self._write_timeout_s()
            )  # What is unsent waits for a client that does not read.
        elif self.write_paused and now_s - self._write_paused_s > self._write_timeout_s():
            self.transport.abort()
        elif self._phase == IDLE and not self._is_busy:
            idle_s_max = limits.idle_close_s if self.lane.is_closing else limits.keep_alive_timeout_s
            if waited_s > idle_s_max:
                self.transport.close()
        elif self._phase == HEAD and waited_s > limits.head_timeout_s:
            self._refuse(RequestTimeout("the request headers took too long to arrive"))
        elif self._phase == BODY and waited_s > limits.body_timeout_s and not self.read_paused:
            self._refuse(RequestTimeout("the request body took too long to arrive"))

    def _write_timeout_s(self) -> float:
        is_answering = self._is_streaming or self._running is not None
        return self._limits.stream_write_timeout_s if is_answering else self._limits.write_timeout_s

    # Refusals.

    def _refuse(self, error: HoldfastError) -> None:
        """Answer the queued requests, then this one with an error, then close; no further input counts."""
        unfinished = self.cycle if self._phase == BODY and self._route is None else None
        self._phase = REFUSED
        self._unparsed = b""
        self._refusal = error
        if unfinished is not None and unfinished.response_complete:
            self.transport.close()  # It was answered before it was read.
        elif unfinished is not None and unfinished is self._running:
            self._refuse_running(unfinished, error)
        elif self._is_busy:
            if unfinished is not None:
                self._queue.pop()
        else:
            self._send_refusal(error)

    def _refuse_running(self, cycle: RequestResponseCycle, error: HoldfastError) -> None:
        cycle.disconnected = True
        cycle.message_event.set()
        if cycle.response_started:
            self.transport.abort()
        else:
            self._send_refusal(error)

    def _send_refusal(self, error: HoldfastError) -> None:
        lane = self.lane
        answer = lane.dialects.of_target(self.url).answer(error)
        self.transport.write(render(answer, correlation_id_of(self.headers), lane.common_head, is_last=True))
        self._linger()

    def _on_early_response(self) -> None:
        """The last answer is out, and its request still comes in."""
        self.server_state.total_requests += 1
        self._running = None
        self._is_busy = False
        self._phase = REFUSED
        self._unparsed = b""
        self._linger()

    def _linger(self) -> None:
        """Closing with unread input would reset the connection and could take the answer away from the client."""
        self._close_at_s = self.lane.now_s + self._limits.linger_s
        self.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
