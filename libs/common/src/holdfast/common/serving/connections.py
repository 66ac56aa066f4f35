"""The open connections of a listener that does not speak HTTP: counted, limited, and ended with the server."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast, runtime_checkable

from fastapi import FastAPI
from uvicorn._types import ASGI3Application
from uvicorn.server import ServerState

from holdfast.common.express.lane import Lane
from holdfast.common.express.limits import Limits
from holdfast.common.express.protocol import bound_to

ConnectionFactory = Callable[[], asyncio.Protocol]
"""Makes what serves one connection. Data and flow control go to it directly."""


@runtime_checkable
class EndsInOrder(Protocol):
    """A connection that knows how to end: with the answer to what it was asked before. Others are just closed."""

    def shutdown(self) -> None: ...


@runtime_checkable
class SeesEnd(Protocol):
    """A connection that wants to know of the end of its input also while it reads nothing."""

    def peer_finished(self) -> None: ...


class Connections:
    """Those of one listener. The server treats them as it does those of HTTP (`Lane`)."""

    def __init__(
        self,
        factory: ConnectionFactory,
        limits: Limits,
        accepts_peer: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.open: set[_Connection] = set()
        self.is_empty = asyncio.Event()
        self.is_closing = False
        self.accepts_peer = accepts_peer
        self._factory = factory
        self._limits = limits

    def connection(self) -> asyncio.Protocol:
        """The protocol of one connection, for `create_server`."""
        if self.is_closing or len(self.open) >= self._limits.connections_max:
            return _Refused()
        return _Connection(self, self._factory())

    @property
    def count(self) -> int:
        return len(self.open)

    def tick(self, now_s: float, wall_s: float) -> None:
        """Connections watch over their own time."""

    def begin_drain(self) -> None:
        """Services are told of it by their `Drain`."""

    def begin_close(self) -> None:
        """End every connection, each as soon as it can."""
        self.is_closing = True
        for connection in list(self.open):
            connection.shutdown()
        if not self.open:
            self.is_empty.set()

    def forget(self, connection: "_Connection") -> None:
        self.open.discard(connection)
        if self.is_closing and not self.open:
            self.is_empty.set()

    def abort(self) -> None:
        """Drop every connection at once."""
        for connection in list(self.open):
            connection.abort()


class _Connection(asyncio.Protocol):
    """Stands around what serves a connection, for its beginning and its end."""

    def __init__(self, connections: Connections, served: asyncio.Protocol) -> None:
        self._connections = connections
        self._served = served
        self._transport: asyncio.Transport | None = None
        self._is_served = False
        # Without a step in between: this is the hot path of such a protocol.
        self.data_received = served.data_received  # type: ignore[method-assign]
        self.eof_received = served.eof_received  # type: ignore[method-assign]
        self.pause_writing = served.pause_writing  # type: ignore[method-assign]
        self.resume_writing = served.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.open.add(self)
        if self._is_accepted(transport.get_extra_info("ssl_object")):
            self._is_served = True
            self._served.connection_made(transport)
        else:
            self._transport.abort()

    def _is_accepted(self, tls: ssl.SSLObject | None) -> bool:
        """Where a certificate is required, the handshake has refused those without one."""
        accepts = self._connections.accepts_peer
        certificate = None if tls is None or accepts is None else tls.getpeercert(True)
        return accepts is None or certificate is None or accepts(certificate)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.forget(self)
        if self._is_served:
            self._served.connection_lost(exc)

    def peer_finished(self) -> None:
        if isinstance(self._served, SeesEnd):
            self._served.peer_finished()

    def shutdown(self) -> None:
        if isinstance(self._served, EndsInOrder):
            self._served.shutdown()
        elif self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class HttpConnections:
    """Makes them; the lane has those that are open."""

    def __init__(self, app: FastAPI, lane: Lane, server_state: ServerState) -> None:
        self._protocol_class = bound_to(lane, cast(ASGI3Application, app), server_state)

    def connection(self) -> asyncio.Protocol:
        """The protocol of one connection, for `create_server`."""
        return self._protocol_class()
