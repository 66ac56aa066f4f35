"""Traces: which requests are recorded, under which ids, and how those ids go on to other processes.

One span per request, made without OpenTelemetry's SDK: its spans cost several times what a small request does. What is
recorded is handed over as it ends; `span_export.py` puts it into OpenTelemetry's words, in a thread of its own.

Sampling is parent-based: a `traceparent` header brings the decision of the caller, who is followed; a request without
one begins a trace, which is recorded when its random id falls into the ratio. What is not recorded has ids all the
same, for the log and for the processes that it goes on to, so that they decide alike.
"""

import re
from collections.abc import Callable
from contextvars import ContextVar
from random import getrandbits
from time import perf_counter_ns, time_ns
from typing import Final

from holdfast.common.express.message import Header, Headers, Request, first_value

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"
BAGGAGE: Final = b"baggage"

_STATE_BYTES_MAX: Final = 512
_BAGGAGE_BYTES_MAX: Final = 8192
_RANDOM_HALF: Final = (1 << 64) - 1
_match_parent = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
).fullmatch


class Span:
    """One request as a part of its trace. What is not sampled has only its ids and the headers it came with."""

    __slots__ = (
        "client",
        "correlation_id",
        "duration_ns",
        "error_code",
        "has_parent",
        "headers",
        "is_sampled",
        "method",
        "parent_id",
        "path",
        "query",
        "route",
        "sink",
        "span_id",
        "started_ns",
        "started_ticks_ns",
        "status",
        "trace_id",
    )

    # Of those that are sampled; the others leave these unset, which is what makes them cheap.
    client: tuple[str, int] | None
    correlation_id: str
    duration_ns: int
    error_code: str | None
    method: str
    parent_id: int
    path: str
    query: bytes
    sink: "Sink"
    started_ns: int
    started_ticks_ns: int

    def __init__(self, trace_id: int, headers: Headers, has_parent: bool, is_sampled: bool) -> None:
        self.trace_id = trace_id
        self.span_id = getrandbits(64) or 1
        self.headers = headers
        self.has_parent = has_parent
        self.is_sampled = is_sampled
        self.status = 0
        self.route = ""

    def end(self, status: int, error_code: str | None = None) -> None:
        """The answer is known, or the client is gone; only the first call counts."""
        if self.status == 0:
            self.status = status
            if self.is_sampled:
                self.error_code = error_code
                self.duration_ns = perf_counter_ns() - self.started_ticks_ns
                self.sink(self)

    @property
    def ids(self) -> tuple[str, str]:
        """Trace id and span id as logs and headers write them."""
        return f"{self.trace_id:032x}", f"{self.span_id:016x}"

    def context_headers(self) -> list[Header]:
        """The place in the trace of what is done for this request, for another process to go on from."""
        headers = [(TRACEPARENT, b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, self.is_sampled))]
        # The state belongs to the parent: without one that counts it has no meaning.
        return headers + _carried(self.headers, TRACESTATE, _STATE_BYTES_MAX) if self.has_parent else headers


Sink = Callable[[Span], None]

current_span: ContextVar[Span | None] = ContextVar("holdfast_span", default=None)
"""The span of the request being served; None while tracing is off."""


class Tracer:
    """Begins the spans of one process and gives those that are sampled to `sink` when they end."""

    __slots__ = ("_bound", "_sink")

    def __init__(self, sample_ratio: float, sink: Sink) -> None:
        self._bound = round(sample_ratio * (1 << 64))
        self._sink = sink

    def begin(self, request: Request, route: str) -> Span:
        """A span for this request, current from now on in this context. `route` is empty while it is not known."""
        offered = request.peek(TRACEPARENT)
        parent = None if offered is None else _parse_parent(offered)
        if parent is None:
            trace_id = getrandbits(128) or 1
            # As OpenTelemetry's TraceIdRatioBased does it.
            is_sampled = trace_id & _RANDOM_HALF < self._bound
        else:
            trace_id = int(parent[2], 16)
            is_sampled = bool(int(parent[4], 16) & 1)
        span = Span(trace_id, request.raw_headers, parent is not None, is_sampled)
        current_span.set(span)
        if is_sampled:
            span.parent_id = 0 if parent is None else int(parent[3], 16)
            span.method = request.method
            span.path = request.path
            span.query = request.query_string
            span.route = route
            span.client = request.client
            span.correlation_id = request.correlation_id
            span.sink = self._sink
            span.started_ns = time_ns()
            span.started_ticks_ns = perf_counter_ns()
        return span


def _parse_parent(text: bytes) -> re.Match[bytes] | None:
    """Version, trace id, parent id and flags; None if the text is not what W3C says, and then does not count."""
    found = _match_parent(text)
    # Version 00 has exactly four fields; later ones may add some behind them.
    return None if found is None or (found[5] and found[1] == b"00") else found


def active_span_ids() -> tuple[str, str] | None:
    """Trace id and span id of the request being served; None while there is none."""
    span = current_span.get()
    return None if span is None else span.ids


def outgoing_headers() -> list[Header]:
    """What tells another process which trace a call belongs to, and what the caller sent along with it."""
    span = current_span.get()
    if span is None:
        return []
    return span.context_headers() + _carried(span.headers, BAGGAGE, _BAGGAGE_BYTES_MAX)


def _carried(headers: Headers, name: bytes, bytes_max: int) -> list[Header]:
    value = first_value(headers, name)
    return [(name, value)] if value and len(value) <= bytes_max else []
