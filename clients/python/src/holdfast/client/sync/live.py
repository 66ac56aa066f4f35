"""Streams without an end: opened again whenever they break off, and closed from any thread."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from holdfast.client.call import Answer, Call
from holdfast.client.errors import TransportFailed
from holdfast.client.queue_opening import Opening
from holdfast.client.sync.transport import Transport


class LiveStream:
    """Close it, or use it in a `with`: the server holds a place for whoever listens."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._closed = threading.Event()
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it. Whoever reads from it at this moment comes to an end too."""
        self._closed.set()
        _shut(self._socket)

    def _prepare(self, call: Call) -> None:
        call.on_connected = self._on_connected

    def _on_connected(self, connected: socket.socket) -> None:
        self._socket = connected
        if self._closed.is_set():
            _shut(connected)

    def _answers(self, opening: Opening) -> Iterator[Answer]:
        """One open answer after the other."""
        while not self._closed.wait(opening.delay_s()):
            try:
                answer = self._transport.run(opening.attempt())
            except TransportFailed:
                if self._closed.is_set():
                    return
                raise
            if answer is not None:
                yield answer


def _shut(connected: socket.socket | None) -> None:
    """Wakes a thread that reads; closing the descriptor would not."""
    if connected is not None:
        with suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)  # Of the plain socket, under any TLS.
