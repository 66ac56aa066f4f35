"""uvicorn's way of one request through ASGI, for old clients and for those that are answered before they have sent all."""

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent, HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import get_local_addr

from holdfast.common.errors import InvalidRequest
from holdfast.common.express.connection import HttpConnection, Job
from holdfast.common.express.hang_up import is_peer_gone, reset

_uvicorn_log: Final = logging.getLogger("uvicorn.error")


class Cycle(RequestResponseCycle):
    """An HTTP/1.0 answer of unknown size ends with its connection; uvicorn would send it chunked.

    The last answer of a connection whose request is still coming in ends in `linger`; uvicorn would close at once.
    """

    linger: Callable[[], None]
    pieces: list[bytes]
    """Of the body, until the application takes them; uvicorn copies each of them twice."""
    waiting_bytes = 0
    _ends_with_connection = False

    async def receive(self) -> ASGIReceiveEvent:
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces, self.waiting_bytes = [], 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: ASGISendEvent) -> None:
        if self.scope["http_version"] == "1.0":
            self._prepare(message)
        if self.more_body and not self.keep_alive and _is_last(message):
            self.keep_alive = True  # The client was told in the head already; only uvicorn is not to close.
            self.on_response = self.linger
        await super().send(message)

    def _prepare(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            names = [name.lower() for name, _ in message.get("headers", ())]
            self._ends_with_connection = b"content-length" not in names
            if self._ends_with_connection:
                self.chunked_encoding = False
                self.expected_content_length = sys.maxsize
        elif self._ends_with_connection and not message.get("more_body", False):
            body = cast(bytes, message.get("body", b""))
            self.expected_content_length = len(body)


def _is_last(message: ASGISendEvent) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body", False)


class AsgiConnection(HttpConnection):
    """A connection whose requests go through ASGI where the lane does not take them."""

    __slots__ = ()

    app: ASGI3Application

    def _begin_asgi(self) -> None:
        version = self._http.get_http_version()
        is_http_1_0 = version == "1.0"
        if self._http.should_upgrade() and has_body(self.headers):
            raise InvalidRequest("a request with a body cannot ask for an upgrade")
        cycle = Cycle(
            scope=self._make_scope(version),
            transport=self.transport,
            flow=cast(FlowControl, self),
            logger=_uvicorn_log,
            access_logger=_uvicorn_log,
            access_log=False,
            default_headers=self.lane.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expects_continue(self.headers) and not is_http_1_0,
            keep_alive=self._http.should_keep_alive() and not is_http_1_0 and not self.lane.is_closing,
            on_response=self.on_response_complete,
        )
        cycle.linger = self._on_early_response
        cycle.pieces = []
        self.cycle = cycle
        if self._is_busy:
            self._wait_in_line(cycle)
        else:
            self._start_cycle(cycle)

    def _make_scope(self, version: str) -> HTTPScope:
        scope = target_scope(self.url, self.headers)
        extensions: dict[str, Any] = {
            PRINCIPAL: self.principal,
            INLINE_BODY_BYTES: self._limits.inline_body_bytes,
            ABORT: partial(reset, self.transport),
            IS_PEER_GONE: partial(is_peer_gone, self.transport),
            END_WITH_CLIENT: self._end_with_client,
        }
        scope.update(
            asgi={"version": "3.0", "spec_version": "2.3"},
            http_version=version,
            method=self._http.get_method().decode("ascii"),
            server=get_local_addr(self.transport),
            client=self.client(),
            scheme="https" if self._is_tls else "http",
            root_path="",
            state={},
            extensions=extensions,
        )
        return cast(HTTPScope, scope)

    def _end_with_client(self) -> None:
        self._is_endless = True

    def _start_cycle(self, cycle: RequestResponseCycle) -> None:
        self._is_busy = True
        self._running = cycle
        tasks = self.server_state.tasks
        task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(tasks.discard)
        tasks.add(task)

    def _on_streamed_body(self, body: bytes) -> None:
        self._since_s = self.lane.now_s
        cycle = cast(Cycle | None, self.cycle)
        if cycle is None or cycle.response_complete:
            return
        cycle.pieces.append(body)
        cycle.waiting_bytes += len(body)
        if cycle.waiting_bytes > HIGH_WATER_LIMIT:
            self.pause_reading()
        cycle.message_event.set()

    def _overflow_to_asgi(self) -> None:
        """A chunked body grew over the inline limit: the ASGI twin of the route reads the rest as a stream."""
        body = self._body
        self._route = None
        self._begin_asgi()
        self._on_streamed_body(bytes(body))

    def _wait_in_line(self, item: "Job | RequestResponseCycle") -> None:
        self._queue.append(item)
        self.pause_reading()


CORRELATION_ID: Final = "holdfast.correlation_id"
PRINCIPAL: Final = "holdfast.principal"
"""Who the connection belongs to; None without mutual TLS."""
INLINE_BODY_BYTES: Final = "holdfast.inline_body_bytes"
"""Above this a body is a stream, if its route takes one."""
ABORT: Final = "holdfast.abort"
"""Drops the connection at once, so that the client does not take what was sent so far for the whole."""
IS_PEER_GONE: Final = "holdfast.is_peer_gone"
"""Tells whether the client has hung up for good, also before its end was read."""
END_WITH_CLIENT: Final = "holdfast.end_with_client"
"""Says that the answer goes on until the client ends its input, by closing the connection or only its half."""
IS_OBSERVED: Final = "holdfast.is_observed"
"""Set when the request was counted where it ran, so that it is not counted again."""
SPAN: Final = "holdfast.span"
"""The span of a request that is traced."""


def target_scope(url: bytes, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """The part of a scope that comes from the request target and the headers."""
    target = httptools.parse_url(url)
    if not target.path:
        raise InvalidRequest("the request target has no path")
    path = target.path.decode("ascii")
    return {
        "type": "http",
        "path": unquote(path) if "%" in path else path,
        "raw_path": target.path,
        "query_string": target.query or b"",
        "headers": headers,
    }


def has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a body follows these headers."""
    return any(
        (name == b"content-length" and value.strip() != b"0") or name == b"transfer-encoding"
        for name, value in headers
    )


def expects_continue(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the client waits to be asked for its body."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
