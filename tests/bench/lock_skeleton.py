"""The least that can speak of locks: `python -m tests.bench.lock_skeleton` splits three lines, keeps a dict of locks, and answers.

No leases, no waiters, no limits, no time: what the listener of a plane costs beside it, in the same run, is what those cost.
"""

import asyncio
import os
import sys
from typing import cast

import uvloop

locks: dict[bytes, bytes] = {}


class SkeletonConnection(asyncio.Protocol):
    """Whole requests of `l` and `r`, as the load sends them."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._input = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._input:
            data = self._input + data
        *lines, self._input = data.split(b"\n")
        answers = [
            _answer(command, key, argument)
            for command, key, argument in zip(lines[::3], lines[1::3], lines[2::3], strict=False)
        ]
        if whole := len(lines) % 3:
            self._input = b"\n".join([*lines[-whole:], self._input])
        if answers:
            self._transport.write(b"".join(answers))


def _answer(command: bytes, key: bytes, argument: bytes) -> bytes:
    if command == b"l":
        if key in locks:
            return b"timeout\n"
        token = os.urandom(16).hex().encode()
        locks[key] = token
        return b"ok %b %b\n" % (token, argument.split()[1])
    if command == b"r" and locks.get(key) == argument:
        del locks[key]
        return b"ok\n"
    return b"error\n"


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(SkeletonConnection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"holdfast is ready at http://127.0.0.1:{port} (the skeleton of its locks)\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())
