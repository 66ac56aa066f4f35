"""How a stream without an end is ended by its reader, from anywhere."""

import socket
from contextlib import suppress
from typing import Protocol


class Shuttable(Protocol):
    """A socket, or what an event loop shows of one."""

    def shutdown(self, how: int, /) -> None: ...


def hang_up(connected: Shuttable | None) -> None:
    """Whoever reads still gets what has arrived, then the end. Closing the descriptor would not wake them."""
    if connected is None:
        return
    with suppress(OSError):  # Closed already.
        if isinstance(connected, socket.socket):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)  # The plain socket, under any TLS.
        else:
            connected.shutdown(socket.SHUT_RDWR)
