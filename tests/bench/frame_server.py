"""The frame of a plane: `python -m tests.bench.frame_server FOLDER` parses requests, writes what a plane would write, synced
once per turn of the loop, and gives canned answers of the same sizes with ids of their own. No rules, no state.

What a plane costs beside it, in the same run, is what its rules and its store cost.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final, cast

import uvloop

from holdfast.cli.bench.load import DOCUMENT
from holdfast.common.ids import fresh_correlation_id, new_xid
from holdfast.storage.disk.segment import allocate

LOG_BYTES: Final = 64 << 20
_BODIES: Final = {
    b"/v1/acquire": (
        b'{"namespace":"default","lease_id":"%b","txn_id":"%b","key":"bench-0000000","owner":"bench",'
        b'"expires_at_unix":1994838309,"version":1,"fencing_token":1,"correlation_id":"%b"}\n'
    ),
    b"/v1/update": b'{"new_version":1,"new_state_etag":"' + b"0" * 64 + b'","bytes":1024,"metadata":{}}\n',
    b"/v1/release": b'{"released":true}\n',
    b"/v1/get": DOCUMENT,
}
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ndate: Wed, 18 Nov 2026 00:00:00 GMT\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nx-correlation-id: %b\r\n\r\n%b"
)


class Turn:
    """What came in while the loop was busy is written and synced together, and answered then."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        path = folder / "frame.log"
        allocate(path, LOG_BYTES)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._loop = loop
        self._offset = 0
        self._written: list[bytes] = []
        self._answers: list[tuple[asyncio.Transport, bytes]] = []
        self.syncs = 0

    def write(self, transport: asyncio.Transport, data: bytes, answer: bytes) -> None:
        if not self._answers:
            self._loop.call_soon(self._end)
        self._written.append(data)
        self._answers.append((transport, answer))

    def _end(self) -> None:
        group = b"".join(self._written)
        self._offset = self._offset if self._offset + len(group) <= LOG_BYTES else 0
        os.pwrite(self._file, group, self._offset)
        os.fdatasync(self._file)
        self.syncs += 1
        self._offset += len(group)
        answers, self._written, self._answers = self._answers, [], []
        for transport, answer in answers:
            transport.write(answer)


class FrameConnection(asyncio.Protocol):
    """Whole requests in one piece each, as the load sends them."""

    _transport: asyncio.Transport

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._input = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._input = data = self._input + data if self._input else data
        head_end = data.find(b"\r\n\r\n")
        if head_end < 0:
            return
        headers: dict[bytes, bytes] = {}
        first, *lines = data[:head_end].split(b"\r\n")
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        if len(data) < head_end + 4 + int(headers.get(b"content-length", b"0")):
            return
        self._input = b""
        path = first.split(b" ")[1].partition(b"?")[0]
        correlation = fresh_correlation_id().encode()
        if path == b"/v1/acquire":
            body = _BODIES[path] % (new_xid().encode(), new_xid().encode(), correlation)
        elif path == b"/metrics":
            body = b"frame_syncs_total %d\n" % self._turn.syncs
        else:
            body = _BODIES[path]
        answer = _HEAD % (len(body), correlation, body)
        if path in (b"/v1/get", b"/metrics"):
            self._transport.write(answer)
        else:
            self._turn.write(self._transport, data, answer)


async def _serve(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    turn = Turn(folder, loop)
    server = await loop.create_server(lambda: FrameConnection(turn), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"holdfast is ready at http://127.0.0.1:{port} (its frame)\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(Path(sys.argv[1])))
