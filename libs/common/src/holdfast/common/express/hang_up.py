"""Whether the other side of a connection is gone for good, as opposed to having closed its sending side only."""

import asyncio
import select
import socket
from typing import cast


def is_peer_gone(transport: asyncio.Transport) -> bool:
    """True after a reset; a peer that only finished sending still counts as there."""
    peer = cast(socket.socket | None, transport.get_extra_info("socket"))
    if peer is None or transport.is_closing():
        return True
    poll = select.poll()
    poll.register(peer.fileno(), 0)  # Errors and hang-ups are reported unasked.
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
