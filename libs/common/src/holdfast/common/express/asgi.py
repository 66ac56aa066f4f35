"""A hot endpoint served by plain ASGI: the same handler, the same answer, the same headers in the same order."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from holdfast.common.correlation import correlation_id_of
from holdfast.common.errors import BodyTooLarge
from holdfast.common.express.execution import execute
from holdfast.common.express.hooks import Hooks
from holdfast.common.express.message import Answer, Header, Request
from holdfast.common.express.route import Route
from holdfast.common.express.scope import CORRELATION_ID, IS_OBSERVED, PEER_CERTIFICATE
from holdfast.common.express.wire import checked, header_list
from holdfast.common.wire_errors import error_answer

_LINGER_S: Final = 2.0


class ClientGone(Exception):
    """The client hung up before its request was complete: there is nobody to answer."""


class ExpressEndpoint:
    """The ASGI application of one route."""

    def __init__(self, route: Route, hooks: Hooks) -> None:
        self._route = route
        self._hooks = hooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope.setdefault("extensions", {})
        extensions[IS_OBSERVED] = True
        request_id: str = extensions.get(CORRELATION_ID) or correlation_id_of(scope["headers"])
        try:
            body = await _read_body(scope["headers"], receive, self._route.body_limit_bytes)
        except ClientGone:
            return
        except BodyTooLarge as error:
            await _send_and_linger(error_answer(error), request_id, receive, send)
            return
        request = Request(
            scope["method"],
            self._route.path,
            scope["query_string"],
            scope["headers"],
            body,
            scope["client"],
            extensions.get(PEER_CERTIFICATE),
            request_id,
        )
        answer = await _until_hang_up(execute(self._route, request, self._hooks), receive)
        if answer is not None:
            await send_answer(answer, request_id, send)


async def send_answer(
    answer: Answer, request_id: str, send: Send, *, extra: tuple[Header, ...] = (), more_body: bool = False
) -> None:
    """Send an answer with the headers that the lane would give it."""
    answer = checked(answer, request_id)
    headers = [*header_list(answer, request_id), *extra]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": more_body})


async def _read_body(headers: list[Header], receive: Receive, limit_bytes: int) -> bytes:
    for name, value in headers:
        # The length is known before anything is read, and before 100-continue invites the body.
        if name == b"content-length" and int(value) > limit_bytes:
            raise _too_large(limit_bytes)
    pieces = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces += message.get("body", b"")
        if len(pieces) > limit_bytes:
            raise _too_large(limit_bytes)
        if not message.get("more_body", False):
            return bytes(pieces)


def _too_large(limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {limit_bytes} bytes, the limit of this endpoint")


async def _send_and_linger(answer: Answer, request_id: str, receive: Receive, send: Send) -> None:
    """Answer at once, then drop what still comes in: closing with unread input could reset the answer away."""
    await send_answer(answer, request_id, send, extra=((b"connection", b"close"),), more_body=True)
    try:
        async with asyncio.timeout(_LINGER_S):
            message: Message = {"more_body": True}
            while message.get("more_body", False):
                message = await receive()
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_hang_up(work: Awaitable[Answer], receive: Receive) -> Answer | None:
    """The answer, or None when the client hung up first; then the work is cancelled, as on the lane."""
    task = asyncio.ensure_future(work)
    hang_up = asyncio.ensure_future(_hang_up(receive))
    try:
        await asyncio.wait((task, hang_up), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for future in (task, hang_up):
            if not future.done():
                future.cancel()
        await asyncio.wait((task, hang_up))


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
