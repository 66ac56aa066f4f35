"""How a connection ends before its time: whether the other side is gone for good, and how to tell it that we are."""

import asyncio
import select
import socket
import struct
from typing import Final, cast

_NO_LINGER: Final = struct.pack("ii", 1, 0)


def is_peer_gone(transport: asyncio.Transport) -> bool:
    """True after a reset; a peer that only finished sending still counts as there."""
    peer = cast(socket.socket | None, transport.get_extra_info("socket"))
    if peer is None or transport.is_closing():
        return transport.is_closing()
    return bool(watch_hang_up(peer).poll(0))


def watch_hang_up(peer: socket.socket) -> "select.poll":
    """Finds something as soon as the other side is gone: errors and hang-ups are reported unasked."""
    poll = select.poll()
    poll.register(peer.fileno(), 0)
    return poll


def reset(transport: asyncio.Transport) -> None:
    """Drop the connection so that the peer sees an error, where a mere end could pass for the end of an answer."""
    peer = cast(socket.socket | None, transport.get_extra_info("socket"))
    if peer is not None and peer.family != socket.AF_UNIX:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
