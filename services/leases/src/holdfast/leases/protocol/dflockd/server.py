"""The listener for dflockd's clients: its options, and what its connections share."""

import asyncio
from dataclasses import dataclass
from typing import Final

from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.protocol.dflockd.connection import LockConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """How long a connection may take, and how many there may be; zero is no limit."""

    read_timeout_s: float = 23.0
    write_timeout_s: float = 5.0
    connections_max: int = 0


DEFAULT_OPTIONS: Final = LineOptions()


class LockServer:
    """Makes the connections of one listener."""

    service: LockService
    """There before the first connection."""

    def __init__(self, options: LineOptions = DEFAULT_OPTIONS, secret: bytes | None = None) -> None:
        self.options = options
        self.secret = secret
        self.connections: set[LockConnection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """That of the first connection, which is that of all."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def connection(self) -> LockConnection:
        """The factory of a `ListenerDeclaration`."""
        return LockConnection(self)

    def admits(self, connection: LockConnection) -> bool:
        if len(self.connections) >= self.options.connections_max > 0:
            return False
        self.connections.add(connection)
        return True
