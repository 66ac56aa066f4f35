"""How a connection ends before its time: whether the other side is gone for good, and how to tell it that we are."""

import asyncio
import select
import socket
import struct
from typing import Final, cast

FILENO: Final = "fileno"
"""Extra information of transports that have a descriptor and no object for their socket."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)


def is_peer_gone(transport: asyncio.Transport) -> bool:
    """True after a reset; a peer that only finished sending still counts as there."""
    if transport.is_closing():
        return True
    hang_up = watch_hang_up(transport)
    return hang_up is not None and bool(hang_up.poll(0))


def has_peer_finished(transport: asyncio.Transport) -> bool:
    """Whether the end of what the other side sends has come, maybe behind bytes that are not read yet. Linux alone tells."""
    if transport.is_closing():
        return True
    poll = watch_hang_up(transport, getattr(select, "POLLRDHUP", 0))
    return poll is not None and bool(poll.poll(0))


def watch_hang_up(transport: asyncio.Transport, events: int = 0) -> "select.poll | None":
    """Finds something as soon as the other side is gone: errors and hang-ups are reported unasked. None: there is no socket."""
    descriptor: int | None = transport.get_extra_info(FILENO)
    if descriptor is None:
        peer = cast(socket.socket | None, transport.get_extra_info("socket"))
        if peer is None:
            return None
        descriptor = peer.fileno()
    poll = select.poll()
    poll.register(descriptor, events)
    return poll


def reset(transport: asyncio.Transport) -> None:
    """Drop the connection so that the peer sees an error, where a mere end could pass for the end of an answer."""
    peer = cast(socket.socket | None, transport.get_extra_info("socket"))
    if peer is not None and peer.family != socket.AF_UNIX:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
