"""How fast large documents and attachments go in and out of a plane on disk, beside `cat` and a SHA-256 of the same bytes.

What is uploaded counts as there when its release has published it. A download is hashed on arrival, as the bytes of `cat`
are; the client is a bare socket and the kernel's `sendfile`, so that what is measured is the server.
"""

import hashlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import psutil

from tests.bench.shapes import ROOT, Plane, on_disk

ATTACHMENT_MB: Final = 1000
DOCUMENT_MB: Final = (5, 100)
TO_CAT_MIN: Final = 0.5
PIECE_BYTES: Final = 1 << 20
TOUCHED_MB: Final = 5000
ROUNDS: Final = {5: 5}
"""By megabytes; what is not named is measured twice."""
ANSWER_S_MAX: Final = 600.0
KEY: Final = "large"
QUIET_S: Final = 0.3
QUIET_S_MAX: Final = 120.0


@dataclass(frozen=True, slots=True)
class Row:
    """One thing; medians of its rounds."""

    name: str
    upload_mb_per_s: float
    download_mb_per_s: float
    cat_mb_per_s: float
    disk_mb_per_s: float
    """A copy of the file that is synced: no upload that has to last can be faster."""
    upload_to_cat: float
    download_to_cat: float
    rss_mb: float
    """Before it came."""
    rss_peak_mb: float
    """While it came and went: the server's own process, where the kernel tells."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A file, and the two requests that bring it in and out."""

    name: str
    path: Path
    upload: str
    download: str
    is_read_by_post: bool
    rounds: int


def run(attachment_mb: int = ATTACHMENT_MB) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        _touch_memory(folder)
        with on_disk(folder, ROOT) as plane:
            return [_measure(plane, thing, folder) for thing in _things(folder, attachment_mb)]


def _touch_memory(folder: Path) -> None:
    """A virtual machine gets its memory when it is used first, which makes writing that into the page cache ten times as dear."""
    path = folder / "touched"
    with path.open("wb") as file:
        for _ in range(TOUCHED_MB):
            file.write(bytes(PIECE_BYTES))
    path.unlink()


def _forget_pages(folder: Path) -> None:
    """What earlier rounds left in the page cache, but for the files that are sent: the next round writes into its memory."""
    blobs = (path for path in (folder / "store" / "blobs").rglob("*") if path.is_file())
    for path in (*folder.glob("*.copy"), *blobs):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _things(folder: Path, attachment_mb: int) -> list[Thing]:
    things = [
        Thing(
            f"a JSON document of {megabytes} MB",
            write_document(folder / f"{megabytes}.json", megabytes * 1_000_000),
            f"/v1/update?key={KEY}",
            f"/v1/get?key={KEY}&public=1",
            True,
            ROUNDS.get(megabytes, 2),
        )
        for megabytes in DOCUMENT_MB
    ]
    attached = f"key={KEY}&name=bench"
    attachment = Thing(
        f"an attachment of {attachment_mb} MB",
        write_bytes(folder / "attachment", attachment_mb * 1_000_000),
        f"/v1/attachments?{attached}",
        f"/v1/attachment?{attached}&public=1",
        False,
        ROUNDS.get(attachment_mb, 2),
    )
    return [*things, attachment]


def write_document(path: Path, size_bytes: int) -> Path:
    """Rows of an order book, compact already, so that what comes back is what was sent."""
    with path.open("wb") as file:
        file.write(b'{"rows":[')
        number = 0
        while file.tell() < size_bytes - 1000:
            row = {"id": f"row-{number:08d}", "total": number * 1.25, "is_paid": True, "note": "x" * 60}
            file.write((b"," if number else b"") + json.dumps(row, separators=(",", ":")).encode())
            number += 1
        rest = size_bytes - file.tell() - len(b'],"rest":""}')
        file.write(b'],"rest":"' + b"x" * rest + b'"}')
    return path


def write_bytes(path: Path, size_bytes: int) -> Path:
    with path.open("wb") as file:
        for start in range(0, size_bytes, PIECE_BYTES):
            file.write(os.urandom(min(PIECE_BYTES, size_bytes - start)))
    return path


def _measure(plane: Plane, thing: Thing, folder: Path) -> Row:
    assert plane.pid is not None
    megabytes = thing.path.stat().st_size / 1e6
    rss_mb = psutil.Process(plane.pid).memory_info().rss / 1e6
    _forget_peak(plane.pid)
    rounds: list[tuple[float, float, float, float]] = []
    for _ in range(thing.rounds):
        digest, cat_s = _timed(lambda: _cat(thing.path))
        _, disk_s = _timed(lambda: _copy(thing.path))
        _, upload_s = _timed(lambda: _upload(plane, thing))
        _wait_for_helpers(plane)
        back, download_s = _timed(lambda: _download(plane, thing))
        assert back == digest, f"{thing.name} is not what was sent"
        _forget_pages(folder)
        rounds.append((megabytes / upload_s, megabytes / download_s, megabytes / cat_s, megabytes / disk_s))
    upload, download, cat, disk = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Row(
        thing.name,
        upload,
        download,
        cat,
        disk,
        statistics.median(up / cat for up, _, cat, _ in rounds),
        statistics.median(down / cat for _, down, cat, _ in rounds),
        rss_mb,
        _peak_mb(plane.pid),
    )


def _wait_for_helpers(plane: Plane) -> None:
    """Processes of the plane that make the summary of what was just published, with what is left of two cores."""
    until_s = time.monotonic() + QUIET_S_MAX
    spent_s = -1.0
    while spent_s != (spent_s := _helpers_cpu_s(plane)):
        assert time.monotonic() < until_s, "the plane does not come to rest"
        time.sleep(QUIET_S)


def _helpers_cpu_s(plane: Plane) -> float:
    helpers = psutil.Process(plane.pid).children(recursive=True)
    return sum(sum(helper.cpu_times()[:2]) for helper in helpers)


def _timed(work: Callable[[], str]) -> tuple[str, float]:
    began_s = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began_s


def _cat(path: Path) -> str:
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        digest = hashlib.sha256()
        while piece := process.stdout.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _copy(path: Path) -> str:
    copied = path.with_suffix(".copy")
    shutil.copyfile(path, copied)
    descriptor = os.open(copied, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return ""


def _upload(plane: Plane, thing: Thing) -> str:
    with _Connection(plane) as connection:
        lease = connection.told("POST", "/v1/acquire", {"key": KEY, "owner": "bench", "ttl_seconds": 600})
        claim = (
            f"X-Lease-ID: {lease['lease_id']}",
            f"X-Txn-ID: {lease['txn_id']}",
            f"X-Fencing-Token: {lease['fencing_token']}",
        )
        connection.send_file(thing.upload, claim, thing.path)
        connection.read()
        ended = {"key": KEY, "lease_id": lease["lease_id"], "txn_id": lease["txn_id"]}
        connection.told("POST", "/v1/release", ended, claim[2:])
    return ""


def _download(plane: Plane, thing: Thing) -> str:
    with _Connection(plane) as connection:
        connection.send("POST" if thing.is_read_by_post else "GET", thing.download, b"")
        digest = hashlib.sha256()
        connection.read(digest.update)
    return digest.hexdigest()


class _Connection:
    """A bare socket: one request, then its answer."""

    def __init__(self, plane: Plane) -> None:
        address = urlsplit(plane.url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=ANSWER_S_MAX)
        self._stream = cast(BufferedReader, self._socket.makefile("rb", buffering=PIECE_BYTES))

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()
        self._socket.close()

    def told(self, method: str, target: str, members: object, headers: Sequence[str] = ()) -> dict[str, Any]:
        pieces: list[bytes] = []
        self.send(method, target, json.dumps(members).encode(), headers)
        self.read(lambda piece: pieces.append(bytes(piece)))
        found: dict[str, Any] = json.loads(b"".join(pieces))
        return found

    def send(self, method: str, target: str, body: bytes, headers: Sequence[str] = ()) -> None:
        self._socket.sendall(_head(method, target, len(body), headers) + body)

    def send_file(self, target: str, headers: Sequence[str], path: Path) -> None:
        self._socket.sendall(_head("POST", target, path.stat().st_size, headers))
        with path.open("rb") as file:
            self._socket.sendfile(file)

    def read(self, take: Callable[[memoryview], object] = lambda piece: None) -> None:
        status = self._stream.readline()
        length: int | None = None
        while (line := self._stream.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not status.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"unexpected answer: {status!r} {self._stream.read1(1000)!r}")
        assert length is not None, "an answer of unknown length"
        piece = memoryview(bytearray(PIECE_BYTES))
        while length:
            count = self._stream.readinto(piece[: min(length, PIECE_BYTES)])
            if not count:
                raise RuntimeError(f"the answer ended {length} bytes early")
            take(piece[:count])
            length -= count


def _head(method: str, target: str, length: int, headers: Sequence[str]) -> bytes:
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: plane",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _forget_peak(pid: int) -> None:
    """Where the kernel lets us; else a peak is that of all things so far."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")
