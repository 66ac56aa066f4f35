"""A load generator on plain sockets: keep-alive connections, no pipelining, cheaper than the server it measures.

It sends one request on every connection, then takes every answer, and so on. The server always finds work waiting
and never goes to sleep between two requests, so its CPU time is that of the requests alone.
"""

import re
import socket
from contextlib import ExitStack
from typing import Final

CONNECTIONS: Final = 32
_READ_BYTES: Final = 65536
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def run_load(host: str, port: int, request: bytes, requests: int) -> None:
    """Send at least so many requests, and return when all are answered."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((host, port), timeout=30))
            for _ in range(CONNECTIONS)
        ]
        answer_bytes = _answer_size(connections[0], request)
        for _ in range(-(-requests // CONNECTIONS)):
            for connection in connections:
                connection.sendall(request)
            for connection in connections:
                _take(connection, answer_bytes)


def _answer_size(connection: socket.socket, request: bytes) -> int:
    """All answers have the same size, so that only the first one has to be parsed."""
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += _receive(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if not head.startswith(b"HTTP/1.1 200") or length is None:
        raise RuntimeError(f"unexpected answer: {answer[:200]!r}")
    size = len(head) + 4 + int(length[1])
    _take(connection, size - len(answer))
    assert len(body) <= int(length[1])
    return size


def _take(connection: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(_receive(connection))
    assert size == 0, "the answers differ in size"


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(_READ_BYTES)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data
