"""Runs an app: listeners, the express lane, signals, and the drain-aware way to stop.

SIGTERM/SIGINT -> drain (answers say Shutdown-Imminent) -> listeners close, running requests end -> lifespan ends
a second signal at any point -> no further waiting
"""

import asyncio
import gc
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
import uvloop
from fastapi import FastAPI
from uvicorn.server import ServerState

from holdfast.common.express.lane import Lane
from holdfast.common.express.limits import DEFAULT_LIMITS, Limits
from holdfast.common.logging import get_logger
from holdfast.common.serving.app import AppParts, app_of, dialects_of, parts_of, table_of
from holdfast.common.serving.connections import Connections, HttpConnections
from holdfast.common.serving.drain import drain_window_s
from holdfast.common.serving.listener import (
    AddressTaken,
    Listener,
    identity_of,
    open_sockets,
    refuse_open_listener,
    remove_socket,
)
from holdfast.common.serving.readiness import HAS_EPOLL, ReadinessSet, SocketListener

_TICK_S: Final = 0.1
_BACKLOG: Final = 2048
_TLS_HANDSHAKE_TIMEOUT_S: Final = 10.0
_TLS_GOODBYE_TIMEOUT_S: Final = (
    1.0  # A client that keeps an idle connection in a pool does not answer a goodbye.
)
_CLOSE_S_MIN: Final = 1.0
_YOUNG_OBJECTS_MAX: Final = 10_000  # A few hundred requests make these: almost all of them are gone by then.

_log = get_logger("server.lifecycle.core")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a server listens beyond its addresses, and how it stops."""

    disable_mtls: bool = False
    is_express: bool = True
    """False serves everything by plain ASGI."""
    limits: Limits = DEFAULT_LIMITS
    drain_grace_s: float = 10.0
    shutdown_timeout_s: float = 10.0
    """0: as long as clients stay."""
    accepts_peer: Callable[[bytes], bool] | None = None
    """Looks at the DER certificate that a client showed in the handshake; False drops the connection."""


DEFAULT_OPTIONS: Final = ServeOptions()


class PlaneServer(uvicorn.Server):
    """uvicorn's server with our listeners, our protocol and our way to stop."""

    def __init__(
        self,
        app: FastAPI,
        listeners: Sequence[Listener],
        options: ServeOptions = DEFAULT_OPTIONS,
        *,
        on_started: Callable[["PlaneServer"], None] | None = None,
    ) -> None:
        for listener in listeners:
            refuse_open_listener(listener, disable_mtls=options.disable_mtls)
        self._app = app
        self._lifespan = AsyncExitStack()
        self._parts: AppParts = parts_of(app)
        self._options = options
        self._on_started = on_started
        self._listeners = listeners
        self.lane = self._lane()
        state = ServerState()
        main = HttpConnections(app, self.lane, state)
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",  # We enter it, so that an error in it arrives as itself and not as a log line.
                log_config=None,
            )
        )
        self.server_state = state
        self._connections: list[Lane | Connections] = [self.lane]
        self._serving = {
            listener: main if listener.is_main else self._served_by(listener) for listener in listeners
        }
        self._parts.health.add("listeners", lambda: None if self.started else "not open yet")
        self.is_started = asyncio.Event()
        self._stop = asyncio.Event()
        self._stopped_at_s = 0.0
        self._ticker: asyncio.Task[None] | None = None
        self._bound: list[tuple[Listener, socket.socket]] = []
        self._left_out: list[str] = []
        self._acceptors: dict[socket.socket, SocketListener | asyncio.Server] = {}
        self._readiness: ReadinessSet | None = None
        self._unix_paths: list[tuple[Path, int]] = []

    @property
    def addresses(self) -> list[tuple[str, int] | str]:
        """Where the app is: (host, port), or the path of a unix socket."""
        return [_address(bound) for listener, bound in self._bound if listener.is_main]

    def addresses_of(self, name: str) -> list[tuple[str, int] | str]:
        """The same for the listener of this name."""
        return [_address(bound) for listener, bound in self._bound if listener.name == name]

    def _lane(self, listener: Listener | None = None) -> Lane:
        """Of all paths, or of those of one listener."""
        options, parts = self._options, self._parts
        return Lane(
            parts.table if listener is None else table_of(parts, listener),
            parts.hooks,
            limits=options.limits,
            is_express=options.is_express,
            accepts_peer=options.accepts_peer,
            dialects=None if listener is None else dialects_of(parts, listener),
        )

    def _served_by(self, listener: Listener) -> "HttpConnections | Connections":
        options = self._options
        if listener.connections is not None:
            connections = Connections(listener.connections, options.limits, options.accepts_peer)
            self._connections.append(connections)
            return connections
        lane = self._lane(listener)
        self._connections.append(lane)
        return HttpConnections(app_of(self._app, listener), lane, self.server_state)

    async def run_until_stopped(self) -> None:
        """Serve until `request_stop`; signals are the caller's."""
        await self._serve()

    def request_stop(self) -> None:
        """Stop in order; asked a second time, stop at once."""
        if not self.should_exit:
            self.should_exit = True
            self._stopped_at_s = time.monotonic()
            self._stop.set()
            return
        _log.warn("shutdown.forced")
        self.force_exit = True
        self._parts.drain.cut_short()
        for connections in self._connections:
            connections.abort()
        for task in self.server_state.tasks:
            task.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._lifespan.enter_async_context(self._app.router.lifespan_context(self._app))
        self.server_state.default_headers = self.lane.default_headers
        self._tick()
        try:
            await self._open_listeners()
        except BaseException:
            await self._close_listeners()
            self._close_readiness()
            await self._lifespan.aclose()
            raise
        self._ticker = asyncio.get_running_loop().create_task(self._tick_for_ever(), name="server.tick")
        self.started = True
        self.is_started.set()
        _log.info("server.listening", service=self._parts.service, addresses=self.addresses)
        if self._on_started is not None:
            self._on_started(self)

    async def _open_listeners(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            for bound in self._sockets_of(listener):
                self._bound.append((listener, bound))
                if listener.protocol == "unix":
                    self._unix_paths.append(identity_of(Path(listener.address)))
                connection = self._serving[listener].connection
                if listener.tls is None and HAS_EPOLL:
                    self._readiness = self._readiness or ReadinessSet(loop)
                    self._acceptors[bound] = SocketListener(self._readiness, bound, connection, _BACKLOG)
                    continue
                server = await loop.create_server(
                    connection,
                    sock=bound,
                    ssl=listener.tls,
                    backlog=_BACKLOG,
                    ssl_handshake_timeout=None if listener.tls is None else _TLS_HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=None if listener.tls is None else _TLS_GOODBYE_TIMEOUT_S,
                )
                self._acceptors[bound] = server

    def _sockets_of(self, listener: Listener) -> list[socket.socket]:
        try:
            return open_sockets(listener)
        except AddressTaken as error:
            if not listener.is_optional:
                raise
            _log.warn("server.listener.left_out", listener=listener.name, reason=str(error))
            self._left_out.append(f"{listener.name} left out: {error}")
            self._parts.health.note("holdfast-listeners", lambda: "; ".join(self._left_out))
            return []

    def _tick(self) -> None:
        now_s, wall_s = time.monotonic(), self._parts.hooks.wall_s()
        for connections in self._connections:
            connections.tick(now_s, wall_s)

    async def _tick_for_ever(self) -> None:
        while True:
            self._tick()
            await asyncio.sleep(_TICK_S)

    async def main_loop(self) -> None:
        await self._stop.wait()
        options = self._options
        _log.info("server.stopping", service=self._parts.service)
        await self._close_sockets([pair for pair in self._bound if pair[0].closes_at_once])
        for connections in self._connections:
            connections.begin_drain()
        await self._parts.drain.run(drain_window_s(options.drain_grace_s, options.shutdown_timeout_s))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._close_listeners()
        for connections in self._connections:
            connections.begin_close()
        used_s = time.monotonic() - self._stopped_at_s
        budget_s = self._options.shutdown_timeout_s
        await self._finish_requests(max(_CLOSE_S_MIN, budget_s - used_s) if budget_s else None)
        self._close_readiness()
        if self._ticker is not None:
            self._ticker.cancel()
        if not self.force_exit:
            await self._lifespan.aclose()
        _log.info("server.stopped", service=self._parts.service, forced=self.force_exit)

    async def _close_listeners(self) -> None:
        await self._close_sockets(list(self._bound))
        for path, inode in self._unix_paths:
            remove_socket(path, inode)

    async def _close_sockets(self, closing: Sequence[tuple[Listener, socket.socket]]) -> None:
        # A connection that the kernel has taken but we have not would be reset: let the loop take those first.
        for _, bound in closing:
            bound.listen(0)
        for _ in range(3):
            await asyncio.sleep(0)
        for pair in closing:
            _, bound = pair
            if (acceptor := self._acceptors.pop(bound, None)) is not None:
                acceptor.close()
            bound.close()
            self._bound.remove(pair)

    def _close_readiness(self) -> None:
        if self._readiness is not None:
            self._readiness.close()
            self._readiness = None

    async def _finish_requests(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                for connections in self._connections:
                    await connections.is_empty.wait()
                if self.server_state.tasks:
                    await asyncio.wait(self.server_state.tasks)
        except TimeoutError:
            _log.warn(
                "shutdown.requests.cut",
                connections=sum(connections.count for connections in self._connections),
            )
            for connections in self._connections:
                connections.abort()
            for task in self.server_state.tasks:
                task.cancel()


def _address(bound: socket.socket) -> tuple[str, int] | str:
    name = bound.getsockname()
    return name if isinstance(name, str) else (name[0], name[1])


@asynccontextmanager
async def running(
    app: FastAPI, *listeners: Listener, options: ServeOptions = DEFAULT_OPTIONS
) -> AsyncIterator[PlaneServer]:
    """A server inside this event loop, for tests and in-process use; leaving the block stops it."""
    server = PlaneServer(app, listeners, options)
    task = asyncio.get_running_loop().create_task(server.run_until_stopped(), name="server")
    started = asyncio.get_running_loop().create_task(server.is_started.wait())
    try:
        await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            yield server
    finally:
        started.cancel()
        server.request_stop()
        await task


def serve(
    app: FastAPI,
    *listeners: Listener,
    options: ServeOptions = DEFAULT_OPTIONS,
    on_started: Callable[[PlaneServer], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order; a second signal forces the exit.

    `on_started` is told once, when every listener is open.
    """

    def started(server: PlaneServer) -> None:
        _spare_collector()
        if on_started is not None:
            on_started(server)

    async def main() -> None:
        server = PlaneServer(app, listeners, options, on_started=started)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.request_stop)
        await server.run_until_stopped()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _spare_collector() -> None:
    """Code and declarations stay for good: a full collection that looks at them stops the loop for tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS_MAX)
