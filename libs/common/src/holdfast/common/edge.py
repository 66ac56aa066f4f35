"""What surrounds every request served by ASGI: correlation id, metrics, and no exception that gets out."""

from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.common.correlation import HEADER, correlation_id_of
from holdfast.common.express.asgi import send_answer
from holdfast.common.express.execution import STATUS_CLIENT_GONE
from holdfast.common.express.hooks import HttpMetrics
from holdfast.common.express.scope import CORRELATION_ID, IS_OBSERVED
from holdfast.common.logging import current_cid, get_logger
from holdfast.common.wire_errors import internal_error_answer

_UNROUTED: Final = "other"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_log = get_logger("api.http.server")


class EdgeMiddleware:
    """The outermost layer of an app that is ours; the lane does the same for its own requests."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics | None = None) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = correlation_id_of(scope["headers"])
        scope.setdefault("extensions", {})[CORRELATION_ID] = request_id
        current_cid.set(request_id)
        exchange = _Exchange(send, request_id)
        started_s = perf_counter()
        try:
            await self._app(scope, receive, exchange.send)
        except Exception as error:  # the edge of the request's task: a defect is logged and hidden
            _log.error("http.app.failed", method=scope["method"], path=scope["path"], exception=error)
            if exchange.status is not None:
                raise  # Too late for another answer; the server drops the connection.
            await send_answer(internal_error_answer(), request_id, exchange.send)
        finally:
            self._observe(scope, exchange.status, perf_counter() - started_s)

    def _observe(self, scope: Scope, status: int | None, duration_s: float) -> None:
        if self._metrics is None or IS_OBSERVED in scope["extensions"]:
            return
        route = getattr(scope.get("route"), "path", _UNROUTED)
        # A client may invent methods; they must not become labels.
        method = scope["method"] if scope["method"] in _METHODS else _UNROUTED
        self._metrics.observe(route, method, status or STATUS_CLIENT_GONE, duration_s)


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
