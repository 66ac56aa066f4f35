"""The express lane: the HTTP/1.1 protocol that answers the routes of a table without going through ASGI.

A connection reads requests (`_phase`) and answers them one after the other (`_is_busy`), so that pipelined answers
keep their order. What it has read ahead waits in `_queue` (whole requests) and `_unparsed` (bytes):

    IDLE --first byte--> HEAD --headers--> BODY --last byte--> IDLE     a request was queued or started
      any --malformed, too large, too slow--> REFUSED                   one last answer, further input is dropped
"""

import re
import select
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.common.errors import (
    HeadersTooLarge,
    HoldfastError,
    InvalidRequest,
)
from holdfast.common.express import stream
from holdfast.common.express.connection import BODY, HEAD, IDLE, REFUSED
from holdfast.common.express.cycle import (
    AsgiConnection,
)
from holdfast.common.express.execution import execute
from holdfast.common.express.hang_up import is_peer_gone, watch_hang_up
from holdfast.common.express.lane import Lane
from holdfast.common.express.message import (
    Answer,
    AnyAnswer,
    Request,
    StreamAnswer,
    render,
    render_stream_head,
)
from holdfast.common.express.route import Route, Table
from holdfast.common.express.undo import CALL_OFF_TARGET
from holdfast.common.ids import HEADER as CORRELATION_HEADER
from holdfast.common.ids import correlation_id, fresh_correlation_id

SLICE_BYTES: Final = 16 * 1024
"""Input is parsed in slices of this size, so that one read cannot queue thousands of pipelined requests."""

REQUESTS_PER_TURN_MAX: Final = 16
"""So many pipelined requests of a connection are answered one after the other; then it is the turn of others."""

_LOOKED_AT: Final = frozenset({CORRELATION_HEADER, b"content-length", b"connection", b"expect", b"upgrade"})


_OTHER: Final = (
    rb"(?!(?i:content-length|transfer-encoding|connection|expect|upgrade|te|trailer|x-correlation-id):)"
    rb"[0-9A-Za-z!#$%&'*+.^_`|~-]++: (?! )[\x20-\x7e]++(?<! )\r\n"
)
_LENGTH: Final = rb"(?i:content-length): ([0-9]{1,6})\r\n"
_CORRELATION: Final = rb"(?i:x-correlation-id): (?! )([\x20-\x7e]{1,128})(?<! )\r\n"
_match_headers = re.compile(
    rb"(?:%(other)b)*+(?:%(length)b(?:%(other)b)*+)?+(?:%(correlation)b(?:%(other)b)*+)?+(?:%(length)b(?:%(other)b)*+)?+\r\n"
    % {b"other": _OTHER, b"length": _LENGTH, b"correlation": _CORRELATION}
).match
_is_plain_query = re.compile(rb"[!$-~]*").fullmatch

LINE_BYTES_MAX: Final = 2048
HEAD_BYTES_MAX: Final = 700
"""Short enough that the limits of the real parser on size and number of headers cannot be reached."""


@dataclass(slots=True)
class QuickHead:
    """The head of a plain request. Another request that begins with the same bytes and has this size is as plain.

    Plain is only a whole request that arrives in one piece and is beyond doubt: an exact request line of a known
    route, well-formed headers of printable ASCII, at most one Content-Length, none of the headers that change how the
    connection works. Everything else, right or wrong, goes to the real parser, which alone decides what is malformed.
    """

    head: bytes
    size: int
    route: Route
    method: str
    query: bytes
    correlation_id: str | None
    header_lines: bytes


class RequestLines:
    """The request lines of a table."""

    __slots__ = ("_inline_body_bytes", "_lines", "_starts")

    def __init__(self, table: Table, inline_body_bytes: int) -> None:
        self._inline_body_bytes = inline_body_bytes
        self._starts = {
            method + b" " + path: (route, method.decode("ascii"))
            for path, methods in table.items()
            for method, route in methods.items()
        }
        self._lines = {start + b" HTTP/1.1": found for start, found in self._starts.items()}

    def recognise(self, data: bytes) -> QuickHead | None:
        """The head of the request, when `data` begins with a plain one."""
        line_end = data.find(b"\r\n", 0, LINE_BYTES_MAX)
        line = data[:line_end]
        query = b""
        found = self._lines.get(line)
        if found is None:
            start, question, rest = line.partition(b"?")
            found = self._starts.get(start) if question and rest.endswith(b" HTTP/1.1") else None
            query = rest[:-9]
            if found is None or not _is_plain_query(query):
                return None
        match = _match_headers(data, line_end + 2, line_end + HEAD_BYTES_MAX)
        if match is None:
            return None
        length, correlation, length_later = match.groups()
        if length is None:
            length = length_later
        elif length_later is not None:
            return None
        body_bytes = 0 if length is None else int(length)
        if body_bytes > min(self._inline_body_bytes, found[0].body_limit_bytes):
            return None
        head_end = match.end()
        offered_id = None if correlation is None else correlation.decode("ascii")
        lines = data[line_end + 2 : head_end - 2]
        return QuickHead(data[:head_end], head_end + body_bytes, *found, query, offered_id, lines)


class ExpressProtocol(AsgiConnection):
    """One connection. What is the same for all of a server is set by `bound_to`."""

    __slots__ = (
        "_correlation_id",
        "_hang_up",
        "_inline_bytes_max",
        "_is_called_off",
        "_is_held_up",
        "_is_parsing",
        "_keeps_alive",
        "_query",
        "_quick",
        "_served_id",
        "_served_in_turn",
        "_served_keeps_alive",
    )

    request_lines: RequestLines

    def __init__(self) -> None:
        super().__init__()
        self._quick: QuickHead | None = None
        self._is_held_up = False
        self._is_called_off = False
        self._is_parsing = False
        self._hang_up: select.poll | None = None
        self._served_id = ""
        self._served_in_turn = 0
        self._served_keeps_alive = True
        self._query = b""
        self._correlation_id: bytes | None = None
        self._keeps_alive = True
        self._inline_bytes_max = 0

    # The client reads its answers slowly.

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_held_up:
            self._is_held_up = False
            self._take_next()

    # Bytes come in.

    def data_received(self, data: bytes) -> None:
        self._served_in_turn = 0
        if self._phase == IDLE and not self._is_busy:
            # Most clients send the same head again and again.
            if self._quick is None or not data.startswith(self._quick.head):
                self._quick = self.request_lines.recognise(data)
            if self._quick is not None and len(data) == self._quick.size:
                self._start_quick(self._quick, data)
                return
        elif self._phase == REFUSED:
            return
        if self._unparsed or len(data) > SLICE_BYTES:
            self._unparsed = self._unparsed[self._unparsed_from :] + data
            self._unparsed_from = 0
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
            self.principal,
            fresh_correlation_id() if offered_id is None else offered_id,
        )
        self._start(quick.route, request, True)

    def _parse_slices(self) -> None:
        if self._is_parsing:
            return  # A request was answered while its bytes were parsed; that parser goes on by itself.
        while self._unparsed and not self._queue and self._phase != REFUSED:
            start = self._unparsed_from
            piece = memoryview(self._unparsed)[start : start + SLICE_BYTES]
            self._unparsed_from += len(piece)
            if self._unparsed_from == len(self._unparsed):
                self._unparsed = b""
                self._unparsed_from = 0
            self._parse(piece)
        if self._unparsed:
            self.pause_reading()

    def _parse(self, data: bytes | memoryview) -> None:
        was_reading = self._phase != IDLE
        self._is_parsing = True
        try:
            self._http.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The request was served as if it had asked for no upgrade; what follows it is the next request.
            self._unparsed = bytes(data[upgrade.args[0] :]) + self._unparsed[self._unparsed_from :]
            self._unparsed_from = 0
            self._is_parsing = False
            self._parse_slices()
        except httptools.HttpParserError as error:
            if self._phase != REFUSED:
                cause = error.__context__
                self._refuse(cause if isinstance(cause, HoldfastError) else InvalidRequest(_explain(error)))
        finally:
            self._is_parsing = False
        if self._phase != IDLE and was_reading:
            self._quiet_bytes += len(data)
            if self._quiet_bytes > self._limits.head_bytes and self._phase != REFUSED:
                self._refuse(
                    HeadersTooLarge(f"request line and headers exceed {self._limits.head_bytes} bytes")
                )

    def on_message_begin(self) -> None:
        if self._phase == REFUSED:
            return
        self.url = b""
        self.headers = []
        self._phase = HEAD
        self._since_s = self.lane.now_s
        self._quiet_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._phase == REFUSED:
            return
        if len(self.headers) > self._limits.headers_max:
            raise HeadersTooLarge(f"more than {self._limits.headers_max} headers")
        self._phase = BODY
        self._quiet_bytes = 0
        if self._is_busy and self.url == CALL_OFF_TARGET:
            self._call_off()
            return
        route = self._find_route()
        if route is not None and self._is_inline(route):
            self._route = route
            self._body = b""
        else:
            self._route = None
            self._begin_asgi()

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        if self._phase == REFUSED:
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
        if self._phase == REFUSED:
            return
        self._phase = IDLE
        self._since_s = self.lane.now_s
        route = self._route
        if route is None:
            assert self.cycle is not None, "it began with the headers"
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
            self.principal,
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
        self._run(execute(route, request, self.lane.hooks))

    def _run(self, work: Coroutine[Any, None, AnyAnswer | None]) -> None:
        worker = self._worker
        if worker is None:
            worker = self._worker = self.lane.take_worker(self.loop)
            worker.serve(self._on_answer, self._on_cancelled)
        worker.run(work)

    def _on_answer(self, answer: AnyAnswer | None) -> None:
        """Send an answer that is complete, or stream it by the same worker, which then comes back with None."""
        lane = self.lane
        transport = self.transport
        if not isinstance(answer, Answer):
            self._on_stream(answer)
            return
        if answer.on_unsent is not None:
            if self._hang_up is None and not transport.is_closing():
                self._hang_up = watch_hang_up(transport)
            if self._hang_up is None or transport.is_closing() or self._hang_up.poll(0):
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
        self._is_endless = answer is not None and answer.is_endless
        if answer is not None and is_peer_gone(self.transport):
            self._run(stream.drop(answer, self.transport))
        elif answer is not None:
            lane = self.lane
            if (lane.is_closing or self._is_eof) and not self._has_more():
                self._served_keeps_alive = False
            head = render_stream_head(
                answer, self._served_id, lane.common_head, is_last=not self._served_keeps_alive
            )
            self._run(stream.write(answer, head, self.transport, self))
        elif not self.transport.is_closing():
            if not self._served_keeps_alive:
                self.transport.close()
            self.on_response_complete()

    def _on_cancelled(self) -> None:
        if self._is_called_off:
            self.transport.close()  # Behind what was sent before: the caller reads on to the end.
        else:
            self.transport.abort()  # Also when a handler cancelled itself: there will be no answer.

    def _call_off(self) -> None:
        """The caller of the request that runs is a gateway whose client is gone; see `CALL_OFF`."""
        self._phase = REFUSED
        self._queue.clear()
        self._unparsed = b""
        if self._running is not None:
            self.transport.abort()  # By ASGI nothing can be stopped without the end of the connection.
        elif self._is_held_up:
            self.transport.close()  # The answer is out.
        else:
            self._is_called_off = True
            if self._worker is not None:
                self._worker.cancel()

    def _has_more(self) -> bool:
        return bool(self._queue or self._unparsed)

    def on_response_complete(self) -> None:
        """An answer is out: take the next queued request, or read on, when the client takes its answers."""
        self.server_state.total_requests += 1
        self._running = None
        self._is_endless = False
        self._since_s = self.lane.now_s
        self._served_in_turn += 1
        if self.write_paused:
            self._is_held_up = True
            self.pause_reading()
        elif self._served_in_turn >= REQUESTS_PER_TURN_MAX:
            self.loop.call_soon(
                self._take_next
            )  # Busy till then, so what is parsed meanwhile waits in the queue.
        else:
            self._take_next()

    def _take_next(self) -> None:
        if self._served_in_turn >= REQUESTS_PER_TURN_MAX:
            self._served_in_turn = 0
        self._is_busy = self._is_probed = False
        if self.transport.is_closing():
            # What the client sent after its last request must not run: no client would get the answer.
            self._phase = REFUSED
            self._queue.clear()
            return
        if self._queue:
            self._renew_grace()
            item = self._queue.popleft()
            if isinstance(item, RequestResponseCycle):
                self._start_cycle(item)
                self._parse_slices()  # The rest of its body may be there.
            else:
                self._start(*item)
            self._doubt_finished_peer()
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        elif self._unparsed or self._is_eof or self.read_paused:
            self._read_on()

    def _read_on(self) -> None:
        if self._unparsed:
            self._renew_grace()
            self._parse_slices()
        if self._is_eof and not self._is_busy:
            self.transport.close()
        elif not self._is_eof and not self._unparsed:
            self.resume_reading()


def bound_to(lane: Lane, app: ASGI3Application, server_state: ServerState) -> type[ExpressProtocol]:
    """The protocol class of one server."""
    shared = {
        "__slots__": (),
        "lane": lane,
        "app": staticmethod(app),
        "server_state": server_state,
        "request_lines": RequestLines(lane.table, lane.limits.inline_body_bytes),
    }
    return type("BoundExpressProtocol", (ExpressProtocol,), shared)


def _explain(error: httptools.HttpParserError) -> str:
    return f"this is not a valid HTTP/1.1 request: {error}"
