"""The express lane: uvicorn's HTTP/1.1 protocol that answers the routes of a table without going through ASGI.

A connection reads requests (`_phase`) and answers them one after the other (`_is_busy`), so that pipelined answers
keep their order. What it has read ahead waits in `_queue` (whole requests) and `_unparsed` (bytes):

    IDLE --first byte--> HEAD --headers--> BODY --last byte--> IDLE     a request was queued or started
      any --malformed, too large, too slow--> REFUSED                   one last answer, further input is dropped
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any, Final, cast

import httptools
from uvicorn._types import ASGI3Application, HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.common.correlation import HEADER as CORRELATION_HEADER
from holdfast.common.correlation import correlation_id, correlation_id_of, fresh_correlation_id
from holdfast.common.errors import (
    HeadersTooLarge,
    HoldfastError,
    InvalidRequest,
    RequestTimeout,
    TooManyConnections,
)
from holdfast.common.express import stream
from holdfast.common.express.cycle import Cycle
from holdfast.common.express.execution import execute
from holdfast.common.express.hang_up import is_peer_gone, reset
from holdfast.common.express.lane import Lane
from holdfast.common.express.message import Answer, AnyAnswer, HandOver, Request, StreamAnswer
from holdfast.common.express.quick_head import QuickHead
from holdfast.common.express.route import Route
from holdfast.common.express.scope import (
    ABORT,
    INLINE_BODY_BYTES,
    IS_PEER_GONE,
    PEER_CERTIFICATE,
    expects_continue,
    has_body,
    target_scope,
)
from holdfast.common.express.wire import render, render_refusal, render_stream_head
from holdfast.common.express.worker import Worker

SLICE_BYTES: Final = 16 * 1024
"""Input is parsed in slices of this size, so that one read cannot queue thousands of pipelined requests."""

_LOOKED_AT: Final = frozenset({CORRELATION_HEADER, b"content-length", b"connection", b"expect", b"upgrade"})
_PROBE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


# Plain numbers, not an Enum: they are compared several times per request.
_IDLE: Final = 0
_HEAD: Final = 1
_BODY: Final = 2
_REFUSED: Final = 3

Job = tuple[Route, Request, bool]


class ExpressProtocol(HttpToolsProtocol):
    """One connection. `lane` is set by `bound_to`, because uvicorn makes its protocols from a class."""

    lane: Lane

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._quick: QuickHead | None = None
        assert self.parser is not None
        self._http: httptools.HttpRequestParser = self.parser  # uvicorn drops its own at the end.
        self.headers = []
        self.peer_certificate: bytes | None = None
        self._limits = self.lane.limits
        self._phase = _IDLE
        self._since_s = self.lane.now_s
        self._quiet_bytes = 0
        self._write_paused_s = 0.0
        self._is_busy = False
        self._is_held_up = False
        self._is_parsing = False
        self._is_eof = False
        self._close_at_s: float | None = None
        self._worker = Worker(self.loop, self._on_answer, self._on_cancelled)
        self._served_id = ""
        self._served_keeps_alive = True
        self._is_streaming = False
        self._running: RequestResponseCycle | None = None
        self._queue: deque[Job | RequestResponseCycle] = deque()
        self._unparsed = b""
        self._refusal: HoldfastError | None = None
        self._route: Route | None = None
        self._query = b""
        self._correlation_id: bytes | None = None
        self._keeps_alive = True
        self._inline_bytes_max = 0
        self._body: bytes | bytearray = b""

    # The connection begins and ends.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        lane = self.lane
        lane.connections.add(self)
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            self.peer_certificate = ssl_object.getpeercert(True)
            if lane.accepts_peer is not None and not lane.accepts_peer(self.peer_certificate or b""):
                self._phase = _REFUSED
                transport.abort()
                return
        if len(lane.connections) > self._limits.connections_max:
            self._refuse(
                TooManyConnections("the server has too many connections; try again", retry_after_s=1)
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self.lane.forget(self)
        self._phase = _REFUSED
        self._unparsed = b""
        for item in (self._running, *self._queue):
            if isinstance(item, RequestResponseCycle) and not item.response_complete:
                item.disconnected = True
                item.message_event.set()
        self._queue.clear()
        self._worker.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to keep the sending side open
        """A client may close its sending side and still wait for the answer, or be gone: only a write can tell."""
        if not self._is_busy or self._refusal is not None or self.scheme == "https":
            return False  # Nothing to wait for, or TLS, which knows no half-closed connection.
        self._is_eof = True
        self._close_at_s = self.lane.now_s + self._limits.half_close_grace_s
        self.lane.half_closed.add(self)
        has_begun_answer = self._is_streaming or (
            self._running is not None and self._running.response_started
        )
        if not has_begun_answer and self._http.get_http_version() != "1.0":
            # A 1xx answer is nothing to a client that waits, and brings a reset from one that is gone.
            self.transport.write(_PROBE)
        return True

    def check_half_closed(self, now_s: float) -> None:
        """Cancel the work of a client that closed its sending side and then went away, or waits for too long."""
        if is_peer_gone(self.transport) or now_s >= (self._close_at_s or now_s):
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
        elif self.flow.write_paused and now_s - self._write_paused_s > limits.write_timeout_s:
            self.transport.abort()
        elif self._phase == _IDLE and not self._is_busy:
            idle_s_max = limits.idle_close_s if self.lane.is_closing else limits.keep_alive_timeout_s
            if waited_s > idle_s_max:
                self.transport.close()
        elif self._phase == _HEAD and waited_s > limits.head_timeout_s:
            self._refuse(RequestTimeout("the request headers took too long to arrive"))
        elif self._phase == _BODY and waited_s > limits.body_timeout_s and not self.flow.read_paused:
            self._refuse(RequestTimeout("the request body took too long to arrive"))

    def pause_writing(self) -> None:
        self._write_paused_s = self.lane.now_s
        super().pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_held_up:
            self._is_held_up = False
            self._take_next()

    # Bytes come in.

    def data_received(self, data: bytes) -> None:
        if self._phase == _IDLE and not self._is_busy:
            # Most clients send the same head again and again.
            if self._quick is None or not data.startswith(self._quick.head):
                self._quick = self.lane.request_lines.recognise(data)
            if self._quick is not None and len(data) == self._quick.size:
                self._start_quick(self._quick, data)
                return
        elif self._phase == _REFUSED:
            return
        if self._unparsed or len(data) > SLICE_BYTES:
            self._unparsed += data
            self._parse_slices()
        else:
            self._parse(data)

    def _start_quick(self, quick: QuickHead, data: bytes) -> None:
        offered_id = quick.correlation_id
        request = Request(
            quick.method,
            quick.route.path,
            quick.query,
            quick.header_lines,
            data[len(quick.head) :],
            self.client,
            self.peer_certificate,
            fresh_correlation_id() if offered_id is None else offered_id,
        )
        self._start(quick.route, request, True)

    def _parse_slices(self) -> None:
        if self._is_parsing:
            return  # A request was answered while its bytes were parsed; that parser goes on by itself.
        while self._unparsed and not self._queue and self._phase != _REFUSED:
            piece, self._unparsed = self._unparsed[:SLICE_BYTES], self._unparsed[SLICE_BYTES:]
            self._parse(piece)
        if self._unparsed:
            self.flow.pause_reading()

    def _parse(self, data: bytes) -> None:
        was_reading = self._phase != _IDLE
        self._is_parsing = True
        try:
            self._http.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The request was served as if it had asked for no upgrade; what follows it is the next request.
            self._unparsed = data[upgrade.args[0] :] + self._unparsed
            self._is_parsing = False
            self._parse_slices()
        except httptools.HttpParserError as error:
            if self._phase != _REFUSED:
                cause = error.__context__
                self._refuse(cause if isinstance(cause, HoldfastError) else InvalidRequest(_explain(error)))
        finally:
            self._is_parsing = False
        if self._phase != _IDLE and was_reading:
            self._quiet_bytes += len(data)
            if self._quiet_bytes > self._limits.head_bytes and self._phase != _REFUSED:
                self._refuse(
                    HeadersTooLarge(f"request line and headers exceed {self._limits.head_bytes} bytes")
                )

    def on_message_begin(self) -> None:
        if self._phase == _REFUSED:
            return
        self.url = b""
        self.headers = []
        self._phase = _HEAD
        self._since_s = self.lane.now_s
        self._quiet_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._phase == _REFUSED:
            return
        if len(self.headers) > self._limits.headers_max:
            raise HeadersTooLarge(f"more than {self._limits.headers_max} headers")
        self._phase = _BODY
        self._quiet_bytes = 0
        route = self._find_route()
        if route is not None and self._is_inline(route):
            self._route = route
            self._body = b""
        else:
            self._route = None
            self._begin_asgi()

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        if self._phase == _REFUSED:
            return
        if self._route is None:
            self._on_streamed_body(body)
            return
        if not self._body:
            self._body = body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body
        if len(self._body) > self._inline_bytes_max:
            self._overflow_to_asgi()

    def on_message_complete(self) -> None:
        if self._phase == _REFUSED:
            return
        self._phase = _IDLE
        self._since_s = self.lane.now_s
        route = self._route
        if route is None:
            self.cycle.more_body = False
            self.cycle.message_event.set()
            return
        request = Request(
            self._http.get_method().decode("ascii"),
            route.path,
            self._query,
            self.headers,
            bytes(self._body),
            self.client,
            self.peer_certificate,
            correlation_id(self._correlation_id),
        )
        self.headers = []
        if self._is_busy:
            self._wait_in_line((route, request, self._keeps_alive))
        else:
            self._start(route, request, self._keeps_alive)

    # Which way a request goes.

    def _find_route(self) -> Route | None:
        table = self.lane.table
        url = self.url
        methods = table.get(url)
        self._query = b""
        if methods is None:
            path, _, query = url.partition(b"?")
            methods = table.get(path)
            if methods is None or b"#" in query:
                return None
            self._query = query
        return methods.get(self._http.get_method())

    def _is_inline(self, route: Route) -> bool:
        """Whether the lane may take this request; notes on the way what the answer will need to know."""
        self._inline_bytes_max = min(self._limits.inline_body_bytes, route.body_limit_bytes)
        self._correlation_id = None
        keeps_alive = True
        for name, value in self.headers:
            if name not in _LOOKED_AT:
                continue
            if name == CORRELATION_HEADER:
                if self._correlation_id is None:
                    self._correlation_id = value
            elif name == b"content-length":
                # The parser let only digits pass.
                if len(value) > 9 or int(value) > self._inline_bytes_max:
                    return False
            elif name == b"connection":
                # Only then can HTTP/1.0 ask to stay, which uvicorn does not grant: all of 1.0 goes its way.
                keeps_alive = self._http.get_http_version() != "1.0"
            else:
                return False  # Expect or Upgrade: uvicorn's way knows both.
        self._keeps_alive = keeps_alive and self._http.should_keep_alive()
        return self._keeps_alive or self._http.get_http_version() != "1.0"

    # The express way.

    def _start(self, route: Route, request: Request, keeps_alive: bool) -> None:
        self._is_busy = True
        self._served_id = request.correlation_id
        self._served_keeps_alive = keeps_alive
        self._worker.run(execute(route, request, self.lane.hooks))

    def _on_answer(self, answer: AnyAnswer | None) -> None:
        """Send an answer that is complete, or stream it by the same worker, which then comes back with None."""
        lane = self.lane
        transport = self.transport
        if not isinstance(answer, Answer):
            self._on_stream(answer)
            return
        if isinstance(answer, HandOver) and is_peer_gone(transport):
            answer.on_unsent()
            transport.abort()
        if transport.is_closing():
            return
        is_last = not self._served_keeps_alive or ((lane.is_closing or self._is_eof) and not self._has_more())
        transport.write(render(answer, self._served_id, lane.common_head, is_last=is_last))
        if is_last:
            transport.close()
        self.on_response_complete()

    def _on_stream(self, answer: StreamAnswer | None) -> None:
        self._is_streaming = answer is not None
        if answer is not None and is_peer_gone(self.transport):
            self._worker.run(stream.drop(answer, self.transport))
        elif answer is not None:
            lane = self.lane
            if (lane.is_closing or self._is_eof) and not self._has_more():
                self._served_keeps_alive = False
            head = render_stream_head(
                answer, self._served_id, lane.common_head, is_last=not self._served_keeps_alive
            )
            self._worker.run(stream.write(answer, head, self.transport, self.flow))
        elif not self.transport.is_closing():
            if not self._served_keeps_alive:
                self.transport.close()
            self.on_response_complete()

    def _on_cancelled(self) -> None:
        self.transport.abort()  # Also when a handler cancelled itself: there will be no answer.

    def _has_more(self) -> bool:
        return bool(self._queue or self._unparsed)

    def _wait_in_line(self, item: "Job | RequestResponseCycle") -> None:
        self._queue.append(item)
        self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """An answer is out: take the next request in line, or read on, as soon as the client takes its answers."""
        self.server_state.total_requests += 1
        self._running = None
        self._since_s = self.lane.now_s
        if self.flow.write_paused:
            self._is_held_up = True
            self.flow.pause_reading()
        else:
            self._take_next()

    def _take_next(self) -> None:
        self._is_busy = False
        if self.transport.is_closing():
            # Whatever the client sent after its last request must not run: nobody would get the answer.
            self._phase = _REFUSED
            self._queue.clear()
            return
        if self._queue:
            item = self._queue.popleft()
            if isinstance(item, RequestResponseCycle):
                self._start_cycle(item)
                self._parse_slices()  # The rest of its body may be there.
            else:
                self._start(*item)
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        elif self._unparsed or self._is_eof or self.flow.read_paused:
            self._read_on()

    def _read_on(self) -> None:
        if self._unparsed:
            self._parse_slices()
        if self._is_eof and not self._is_busy:
            self.transport.close()
        elif not self._is_eof and not self._unparsed:
            self.flow.resume_reading()

    # The ASGI way.

    def _begin_asgi(self) -> None:
        version = self._http.get_http_version()
        is_http_1_0 = version == "1.0"
        if self._http.should_upgrade() and has_body(self.headers):
            raise InvalidRequest("a request with a body cannot ask for an upgrade")
        self.scope = self._make_scope(version)
        cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.lane.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expects_continue(self.headers) and not is_http_1_0,
            keep_alive=self._http.should_keep_alive() and not is_http_1_0 and not self.lane.is_closing,
            on_response=self.on_response_complete,
        )
        cycle.linger = self._on_early_response
        self.cycle = cycle
        if self._is_busy:
            self._wait_in_line(cycle)
        else:
            self._start_cycle(cycle)

    def _make_scope(self, version: str) -> HTTPScope:
        scope = target_scope(self.url, self.headers)
        scope.update(
            asgi={"version": self.asgi_version, "spec_version": "2.3"},
            http_version=version,
            method=self._http.get_method().decode("ascii"),
            server=self.server,
            client=self.client,
            scheme=self.scheme,
            root_path=self.root_path,
            state=self.app_state.copy(),
            extensions={
                PEER_CERTIFICATE: self.peer_certificate,
                INLINE_BODY_BYTES: self._limits.inline_body_bytes,
                ABORT: partial(reset, self.transport),
                IS_PEER_GONE: partial(is_peer_gone, self.transport),
            },
        )
        return cast(HTTPScope, scope)

    def _start_cycle(self, cycle: RequestResponseCycle) -> None:
        self._is_busy = True
        self._running = cycle
        self._start_asgi_task(cycle, cast(ASGI3Application, self.app))

    def _on_streamed_body(self, body: bytes) -> None:
        self._since_s = self.lane.now_s
        if self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def _overflow_to_asgi(self) -> None:
        """A chunked body grew over the inline limit: the ASGI twin of the route reads the rest as a stream."""
        body = self._body
        self._route = None
        self._begin_asgi()
        self._on_streamed_body(bytes(body))

    # Refusals.

    def _refuse(self, error: HoldfastError) -> None:
        """Answer the requests in line, then this one with an error, then close; no further input counts."""
        unfinished = self.cycle if self._phase == _BODY and self._route is None else None
        self._phase = _REFUSED
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
        self.transport.write(render_refusal(error, correlation_id_of(self.headers), self.lane.common_head))
        self._linger()

    def _on_early_response(self) -> None:
        """The last answer is out, and its request still comes in."""
        self.server_state.total_requests += 1
        self._running = None
        self._is_busy = False
        self._phase = _REFUSED
        self._unparsed = b""
        self._linger()

    def _linger(self) -> None:
        """Closing with unread input would reset the connection and could take the answer away from the client."""
        self._close_at_s = self.lane.now_s + self._limits.linger_s
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()


def bound_to(lane: Lane) -> type[ExpressProtocol]:
    """The protocol class of one server."""
    return type("BoundExpressProtocol", (ExpressProtocol,), {"lane": lane})


def _explain(error: httptools.HttpParserError) -> str:
    return f"this is not a valid HTTP/1.1 request: {error}"
