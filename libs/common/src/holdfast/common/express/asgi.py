"""A hot endpoint served by plain ASGI: the same handler, the same answer, the same headers in the same order."""

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any, Final, TypeVar

from starlette.types import Receive, Scope, Send

from holdfast.common.errors import HoldfastError
from holdfast.common.express.body import ClientGone, RequestBody
from holdfast.common.express.cycle import (
    ABORT,
    CORRELATION_ID,
    END_WITH_CLIENT,
    INLINE_BODY_BYTES,
    IS_OBSERVED,
    IS_PEER_GONE,
    PRINCIPAL,
    SPAN,
)
from holdfast.common.express.execution import Hooks, execute
from holdfast.common.express.limits import DEFAULT_LIMITS
from holdfast.common.express.message import Answer, Header, Request, StreamAnswer, checked, header_list
from holdfast.common.express.route import Route
from holdfast.common.express.stream import StreamBroken, close, log_broken, pieces
from holdfast.common.ids import correlation_id_of
from holdfast.common.telemetry.tracing import Span

Result = TypeVar("Result")

_LAST: Final[tuple[Header, ...]] = ((b"connection", b"close"),)


class ExpressEndpoint:
    """The ASGI application of one route."""

    def __init__(self, route: Route, hooks: Hooks) -> None:
        self._route = route
        self._hooks = hooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope.setdefault("extensions", {})
        extensions[IS_OBSERVED] = True
        request_id: str = extensions.get(CORRELATION_ID) or correlation_id_of(scope["headers"])
        span: Span | None = extensions.get(SPAN)
        if span is not None:
            span.route = self._route.path
        body = RequestBody(scope["headers"], receive, self._route)
        try:
            collected = await body.collect(
                extensions.get(INLINE_BODY_BYTES, DEFAULT_LIMITS.inline_body_bytes)
            )
        except ClientGone:
            return
        except HoldfastError as error:
            await send_answer(self._route.traits.dialect.answer(error), request_id, send, extra=_LAST)
            return
        request = self._request(scope, collected or b"", request_id)
        chunks = body if collected is None else None
        answer = await _until_hang_up(execute(self._route, request, self._hooks, chunks, span), body)
        if isinstance(answer, Answer) and answer.on_unsent is not None and _is_peer_gone(extensions):
            answer.on_unsent()  # It is sent all the same: ASGI knows no way to say nothing.
        if isinstance(answer, StreamAnswer):
            await _until_hang_up(_send_stream(answer, request, extensions, send), body)
        elif answer is not None:
            # A request whose body is not read to its end is the last one of its connection.
            await send_answer(answer, request_id, send, extra=() if body.is_complete else _LAST)

    def _request(self, scope: Scope, body: bytes, request_id: str) -> Request:
        return Request(
            scope["method"],
            self._route.path,
            scope["query_string"],
            scope["headers"],
            body,
            scope["client"],
            scope["extensions"].get(PRINCIPAL),
            request_id,
        )


def _is_peer_gone(extensions: dict[str, Any]) -> bool:
    return IS_PEER_GONE in extensions and extensions[IS_PEER_GONE]()


async def send_answer(answer: Answer, request_id: str, send: Send, *, extra: tuple[Header, ...] = ()) -> None:
    """Send an answer with the headers that the lane would give it."""
    answer = checked(answer, request_id)
    headers = [*header_list(answer, request_id), *extra]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


async def _send_stream(
    answer: StreamAnswer, request: Request, extensions: dict[str, Any], send: Send
) -> None:
    headers = header_list(answer, request.correlation_id)
    if answer.is_endless and END_WITH_CLIENT in extensions:
        extensions[END_WITH_CLIENT]()
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if request.method != "HEAD":
            async with aclosing(pieces(answer)) as chunks:
                async for piece in chunks:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except StreamBroken as error:
        if ABORT not in extensions:
            raise  # Another server than ours has its own way to drop the connection.
        log_broken(error)
        extensions[ABORT]()
        await asyncio.Event().wait()  # Until the end of the connection ends this too.
    finally:
        await close(answer)


async def _until_hang_up(work: Awaitable[Result], body: RequestBody) -> Result | None:
    """The result, or None when the client hung up first; then the work is cancelled, as on the lane."""
    task = asyncio.ensure_future(work)
    hang_up = asyncio.ensure_future(body.hang_up())
    try:
        await asyncio.wait((task, hang_up), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for future in (task, hang_up):
            if not future.done():
                future.cancel()
        await asyncio.wait((task, hang_up))
