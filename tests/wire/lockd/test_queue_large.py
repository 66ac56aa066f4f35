"""Payloads that do not fit into a record: the same bytes come back, and the server holds few of them at a time."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.infra.memory import MIB, taking_little_memory
from tests.system.cli import serving
from tests.wire.lockd.queue_wire import BOUNDARY, MULTIPART

PIECE = bytes(range(256)) * 256
META = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="meta"\r\n\r\n{{"queue":"large"}}\r\n'.encode()
PAYLOAD = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="payload"\r\n\r\n'.encode()
END = f"--{BOUNDARY}--\r\n".encode()


def message(pieces: int, *, is_payload_first: bool) -> Iterator[bytes]:
    """A message of so many pieces, chunked: its length is not told."""
    if not is_payload_first:
        yield META
    yield PAYLOAD
    for _ in range(pieces):
        yield PIECE
    yield b"\r\n"
    if is_payload_first:
        yield META
    yield END


def received(read: Iterator[bytes]) -> tuple[int, str]:
    """Size and digest of the payload of a delivery, kept nowhere whole."""
    head = b""
    for piece in read:
        head += piece
        if head.count(b"\r\n\r\n") >= 2:
            break
    _, part, rest = head.split(b"\r\n\r\n", 2)
    size_bytes = int(part.rpartition(b"Content-Length: ")[2].split(b"\r\n")[0])
    digest = hashlib.sha256()
    left_bytes = size_bytes
    while left_bytes > 0:
        digest.update(rest[:left_bytes])
        left_bytes -= len(rest)
        rest = next(read) if left_bytes > 0 else b""
    return size_bytes, digest.hexdigest()


def move_64_mib(client: httpx.Client) -> None:
    """Messages in and out, each of 64 MiB."""
    pieces = 64 * MIB // len(PIECE)
    digest = hashlib.sha256(PIECE * pieces).hexdigest()
    asked = {"queue": "large", "owner": "worker", "wait_seconds": -1}
    for is_payload_first in (False, True):
        body = message(pieces, is_payload_first=is_payload_first)
        enqueued = client.post("/v1/queue/enqueue", content=body, headers=MULTIPART)
        with client.stream("POST", "/v1/queue/dequeue", json=asked) as read:
            taken = received(read.iter_raw())

        assert enqueued.status_code == 200, enqueued.text
        assert enqueued.json()["payload_bytes"] == 64 * MIB
        assert taken == (64 * MIB, digest)


@pytest.mark.parametrize("express", ["--express", "--no-express"])
def test_64_mib_in_and_out_take_less_than_64_mb_of_memory(tmp_path: Path, express: str) -> None:
    with (
        serving(tmp_path, "--listen", "127.0.0.1:0", express, "--qrf-disabled") as server,
        httpx.Client(base_url=server.url, timeout=120) as client,
        taking_little_memory(server.process.pid),
    ):
        move_64_mib(client)
