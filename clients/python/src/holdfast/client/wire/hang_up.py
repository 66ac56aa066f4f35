"""How a stream without an end is ended by its reader, from anywhere."""

import os
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Connected(Protocol):
    """A socket, or what an event loop shows of one."""

    def fileno(self) -> int: ...


def second_handle(connected: Connected) -> socket.socket:
    """A socket of our own on the same connection, because not every event loop lets go of its own.

    Close it with the stream: the connection lasts as long as either is open.
    """
    return socket.socket(fileno=os.dup(connected.fileno()))


def hang_up(connected: socket.socket) -> None:
    """Readers still get what has arrived, then the end. Closing the descriptor would not wake them.

    The close that follows is a reset: a server can't mistake it for a client that only has no more to say.
    """
    with suppress(OSError):  # Closed already.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        socket.socket.shutdown(connected, socket.SHUT_RDWR)  # The plain socket, under any TLS.
