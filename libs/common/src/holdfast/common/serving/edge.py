"""What surrounds every request served by ASGI: correlation id, trace, metrics, and no exception that gets out."""

from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.common.dialect import Dialects
from holdfast.common.express.asgi import send_answer
from holdfast.common.express.cycle import CORRELATION_ID, IS_OBSERVED, SPAN
from holdfast.common.express.execution import STATUS_CLIENT_GONE, Hooks, log_request
from holdfast.common.express.message import METHODS, Request
from holdfast.common.ids import HEADER, correlation_id_of
from holdfast.common.logging import current_cid, get_logger
from holdfast.common.logging import output as log_output
from holdfast.common.telemetry.tracing import Span, current_span
from holdfast.common.wire_errors import internal_error

_UNROUTED: Final = "other"
# Asked every few seconds, by machines.
_NOT_TRACED: Final = frozenset({"/healthz", "/readyz", "/health", "/metrics"})

_log = get_logger("api.http.server")


class EdgeMiddleware:
    """The outermost layer of an app that is ours; the lane does the same for its own requests."""

    def __init__(self, app: ASGIApp, hooks: Hooks, dialects: Dialects) -> None:
        self._app = app
        self._hooks = hooks
        self._dialects = dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = correlation_id_of(scope["headers"])
        scope.setdefault("extensions", {})[CORRELATION_ID] = request_id
        current_cid.set(request_id)
        span = self._begin_span(scope, request_id)
        exchange = _Exchange(send, request_id)
        started_s = perf_counter()
        try:
            await self._app(scope, receive, exchange.send)
        except Exception as error:  # the edge of the request's task: a defect is logged and hidden
            _log.error("http.app.failed", method=scope["method"], path=scope["path"], exception=error)
            if exchange.status is not None:
                raise  # Too late for another answer; the server drops the connection.
            answer = self._dialects.of(scope["path"]).answer(internal_error())
            await send_answer(answer, request_id, exchange.send)
        finally:
            self._observe(scope, exchange.status or STATUS_CLIENT_GONE, perf_counter() - started_s, span)

    def _begin_span(self, scope: Scope, request_id: str) -> Span | None:
        if self._hooks.tracer is None:
            return None
        if scope["path"] in _NOT_TRACED:
            current_span.set(None)  # The task may have inherited that of the request before it.
            return None
        request = Request(
            scope["method"],
            scope["path"],
            scope["query_string"],
            scope["headers"],
            b"",
            scope["client"],
            None,
            request_id,
        )
        span = scope["extensions"][SPAN] = self._hooks.tracer.begin(request, "")
        return span

    def _observe(self, scope: Scope, status: int, duration_s: float, span: Span | None) -> None:
        route = getattr(scope.get("route"), "path", "")
        if span is not None:
            span.route = span.route or route
            span.end(status)
        metrics = self._hooks.metrics
        if metrics is not None and IS_OBSERVED not in scope["extensions"]:
            method = scope["method"] if scope["method"] in METHODS else _UNROUTED
            metrics.observe(route or _UNROUTED, method, status, duration_s)
            if log_output.is_debug:
                log_request(route, scope["method"], scope["path"], status, duration_s)


class _Exchange:
    """Sends for one request, and remembers whether an answer has begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self.status: int | None = None
        self._send = send
        self._id = request_id.encode("ascii")

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            if not any(name.lower() == HEADER for name, _ in headers):
                headers.append((HEADER, self._id))
            message = {**message, "headers": headers}
        await self._send(message)
