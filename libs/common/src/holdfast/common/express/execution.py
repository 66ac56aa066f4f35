"""The one way a hot request is run, by the lane and by ASGI: admit, validate, handle, turn errors into answers."""

from collections.abc import AsyncIterator
from time import perf_counter
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.express.hooks import Hooks
from holdfast.common.express.message import AnyAnswer, Request, StreamAnswer
from holdfast.common.express.request_log import log_request
from holdfast.common.express.route import Route
from holdfast.common.express.stream import begin
from holdfast.common.logging import current_cid, get_logger, is_debug_on
from holdfast.common.tracing import Span
from holdfast.common.wire_errors import internal_error

STATUS_CLIENT_GONE: Final = 499
"""Counted, never sent: the client hung up before there was an answer."""

_log = get_logger("api.http.router")


async def execute(
    route: Route,
    request: Request,
    hooks: Hooks,
    chunks: AsyncIterator[bytes] | None = None,
    span: Span | None = None,
) -> AnyAnswer:
    """Run the handler of a route; whatever goes wrong becomes an answer, except the client hanging up.

    With `chunks`, the body as a stream, the route's `stream_handler` runs. A streamed answer has its first chunk.
    `span` is that of a request that is traced already.
    One function on purpose: each further coroutine in between would cost every hot request.
    """
    current_cid.set(request.correlation_id)
    metrics = hooks.metrics
    if span is None and hooks.tracer is not None:
        span = hooks.tracer.begin(request, route.path)
    status = STATUS_CLIENT_GONE
    code: str | None = None
    started_s = 0.0
    was_given = False
    if metrics is not None:
        started_s = perf_counter()
        metrics.in_flight += 1
    try:
        if hooks.check is not None:
            hooks.check()
        if hooks.identify is not None:
            hooks.identify(route, request)
        if hooks.admit is not None:
            was_given = True
            pause = hooks.admit(route, request)
            if pause is not None:
                await pause
        if chunks is None:
            answer = await route.handler(request, route.parse(request.body))
        else:
            assert route.stream_handler is not None
            answer = await route.stream_handler(request, chunks)
        if isinstance(answer, StreamAnswer):
            await begin(answer)
        status = answer.status
    except HoldfastError as error:
        answer = route.traits.dialect.answer(error)
        status = answer.status
        code = error.code
    except Exception as error:  # noqa: BLE001 - the edge of the request's task: a defect is logged and hidden
        _log.error("http.handler.failed", method=request.method, path=request.path, exception=error)
        answer = route.traits.dialect.answer(internal_error())
        status = answer.status
        code = HoldfastError.code
    finally:
        if was_given and hooks.leave is not None:
            hooks.leave(route)
        if metrics is not None:
            metrics.in_flight -= 1
            duration_s = perf_counter() - started_s
            metrics.observe(route.path, request.method, status, duration_s)
            if is_debug_on():
                log_request(route.path, request.method, request.path, status, duration_s)
        if span is not None:
            span.end(status, code)
    return answer
