"""Spans in OpenTelemetry's words, sent by a thread of their own; imported only while telemetry is on."""

import threading
from collections import deque
from time import monotonic
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import AttributeValue

from holdfast.common.express.execution import STATUS_CLIENT_GONE, operation_of
from holdfast.common.express.message import METHODS, first_value
from holdfast.common.logging import get_logger, mask_urls
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.telemetry.tracing import TRACESTATE, Span

QUEUED_MAX: Final = 8192
BATCH_MAX: Final = 512
INTERVAL_S: Final = 1.0

_TEXT_CHARS_MAX: Final = 1024
_HEADERS_SENT: Final = (b"host", b"user-agent", TRACESTATE)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_FINE: Final = Status(StatusCode.UNSET)
_FAILED: Final = Status(StatusCode.ERROR)
_SCOPE: Final = InstrumentationScope("holdfast")

_log = get_logger("observability.telemetry.exporter")


class SpanSender:
    """Takes ended spans and exports them in batches. What comes faster than it can be sent is dropped and counted."""

    def __init__(self, exporter: SpanExporter, resource: Resource, registry: Registry, scheme: str) -> None:
        self._exporter = exporter
        self._resource = resource
        self._scheme = scheme
        self._queue: deque[Span] = deque()
        self._wake = threading.Event()
        self._is_stopping = False
        self._give_up_at_s = float("inf")
        self._is_failing = False
        spans = registry.counter(
            "holdfast.telemetry.spans",
            "Recorded spans by what became of them: sent, failed, or dropped because too many waited.",
            ("result",),
        )
        self._sent, self._failed, self._dropped = (
            spans.labels(name) for name in ("sent", "failed", "dropped")
        )
        self.thread = threading.Thread(target=self._run, name="telemetry.spans", daemon=True)
        self.thread.start()

    def take(self, span: Span) -> None:
        """Called on the event loop with every recorded span that ends; never waits."""
        waiting = len(self._queue)
        if waiting >= QUEUED_MAX:
            self._dropped.inc()
            return
        if not isinstance(span.headers, bytes) or len(span.path) > _TEXT_CHARS_MAX:
            _shorten(span)
        self._queue.append(span)
        if waiting + 1 == BATCH_MAX:
            self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """Send what waits, and begin nothing more after the timeout. Returns at once; `thread` ends."""
        self._give_up_at_s = monotonic() + timeout_s
        self._is_stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(INTERVAL_S)
            self._wake.clear()
            self._send_waiting()
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._queue and monotonic() < self._give_up_at_s:
            spans = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
            try:
                result = self._exporter.export([self._readable(span) for span in spans])
                self._tell(
                    len(spans),
                    None
                    if result is SpanExportResult.SUCCESS
                    else "its own lines, from opentelemetry, say why",
                )
            except Exception as error:  # noqa: BLE001 - the edge of this thread; the next batch is tried all the same
                self._tell(len(spans), error)

    def _tell(self, count: int, problem: object) -> None:
        """Only changes are logged: a collector may be away for hours."""
        (self._sent if problem is None else self._failed).inc(count)
        if problem is not None and not self._is_failing:
            _log.warn("telemetry.spans.failed", spans=count, error=problem)
        elif problem is None and self._is_failing:
            _log.info("telemetry.spans.recovered", lost=int(self._failed.value + self._dropped.value))
        self._is_failing = problem is not None

    def _readable(self, span: Span) -> ReadableSpan:
        method = span.method if span.method in METHODS else "HTTP"
        state = TraceState()
        if span.has_parent and (text := first_value(span.headers, TRACESTATE)) is not None:
            state = TraceState.from_header([text.decode("latin-1")])
        parent = None
        if span.parent_id:
            parent = SpanContext(span.trace_id, span.parent_id, True, _SAMPLED, state)
        return ReadableSpan(
            name=f"{method} {span.route}" if span.route else method,
            context=SpanContext(span.trace_id, span.span_id, False, _SAMPLED, state),
            parent=parent,
            resource=self._resource,
            attributes=self._attributes(span),
            kind=SpanKind.SERVER,
            status=_FAILED if span.status >= 500 else _FINE,
            start_time=span.started_ns,
            end_time=span.started_ns + span.duration_ns,
            instrumentation_scope=_SCOPE,
        )

    def _attributes(self, span: Span) -> dict[str, AttributeValue]:
        """Those of OpenTelemetry's conventions for HTTP servers, and a few of our own."""
        found: dict[str, AttributeValue] = {
            "http.request.method": span.method if span.method in METHODS else "_OTHER",
            "url.path": span.path[:_TEXT_CHARS_MAX],
            "url.scheme": self._scheme,
            "holdfast.correlation_id": span.correlation_id,
        }
        if span.query:
            found["url.query"] = mask_urls("?" + span.query.decode("latin-1"))[1:][:_TEXT_CHARS_MAX]
        if span.route:
            found["http.route"] = span.route
            found["holdfast.operation"] = operation_of(span.route)
        if span.client is not None:
            found["client.address"], found["client.port"] = span.client
        if host := first_value(span.headers, b"host"):
            found |= _server(host.decode("latin-1")[:_TEXT_CHARS_MAX])
        if agent := first_value(span.headers, b"user-agent"):
            found["user_agent.original"] = agent.decode("latin-1")[:_TEXT_CHARS_MAX]
        if span.status == STATUS_CLIENT_GONE:
            found["error.type"] = "client_gone"
        else:
            found["http.response.status_code"] = span.status
        if span.error_code is not None:
            found["holdfast.error_code"] = span.error_code
        if span.status >= 500:
            found["error.type"] = span.error_code or str(span.status)
        return found


def _shorten(span: Span) -> None:
    """Forget what is not sent: heads may be large, and thousands of spans may wait. Plain lines are short as they are."""
    found = ((name, first_value(span.headers, name)) for name in _HEADERS_SENT)
    span.headers = [(name, value[:_TEXT_CHARS_MAX]) for name, value in found if value]
    span.path = span.path[:_TEXT_CHARS_MAX]
    span.query = span.query[:_TEXT_CHARS_MAX]


def _server(host: str) -> dict[str, AttributeValue]:
    """The server as the client named it."""
    address, _, port = host.rpartition(":")
    if not address or not port.isdecimal():
        return {"server.address": host}
    return {"server.address": address, "server.port": int(port)}
