"""What an operation costs while many others wait: messages in a queue, held leases, callers that wait for one key.

A plane with many and one with few take turns. Messages and leases are written through the storage library before the
planes start; waiters are connections of this process, each with an acquire that is not answered.
"""

import asyncio
import json
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import psutil

from holdfast.cli.bench.measure import NAMESPACE, drive
from holdfast.cli.bench.queue.operations import PAYLOAD, QUEUE
from holdfast.common.clock import SteadyClock
from holdfast.common.ids import new_xid, uuid7
from holdfast.leases.layer.records import HELD, LEASES
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.arrival import new_message
from holdfast.queue.layer.message.records import Writes, add_new, keys_of
from holdfast.queue.layer.message.types import EnqueueOrder, QueueAddress
from holdfast.queue.layer.records_pb2 import QueuePolicy
from holdfast.storage.disk.store import open_disk
from holdfast.storage.intake import Content
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from tests.bench import c_load
from tests.bench.shapes import ROOT, Plane, on_disk

MESSAGES: Final = 1_000_000
LEASES_HELD: Final = 100_000
WAITERS: Final = 9_900
"""A server takes 10,000 connections, and the load needs some of them."""
FEW: Final = 10
FEW_WAITERS: Final = 100
CLIENTS: Final = 10
ROUNDS: Final = 5
SECONDS: Final = 1.0
HAND_OVERS: Final = 500
FILL_RECORDS: Final = 500
HOLD_S: Final = 3600
CONTENDED: Final = "contended"
ANSWER_S_MAX: Final = 60.0
_POLL_S: Final = 0.05

Fill = Callable[[Store, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """So many of one kind; server CPU per operation, medians of all rounds."""

    name: str
    operation: str
    few: int
    many: int
    few_us: float
    many_us: float
    to_few: float
    rss_few_mb: float
    rss_many_mb: float


def run(*, messages: int = MESSAGES, leases: int = LEASES_HELD, waiters: int = WAITERS) -> list[Row]:
    return [
        _filled("messages that wait in the queue", "a message's life", "queue", _fill_messages, messages),
        _filled("leases that are held", "a lock cycle on other keys", "lock", _fill_leases, leases),
        *_waited(waiters),
    ]


# -- what lies in the store


def _filled(name: str, operation: str, kind: str, fill: Fill, many: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder_name, ExitStack() as stack:
        planes: list[Plane] = []
        for count in (FEW, many):
            folder = Path(folder_name) / str(count)
            asyncio.run(_fill_store(folder / "store", fill, count))
            planes.append(stack.enter_context(on_disk(folder, ROOT)))
        return _row(name, operation, kind, (FEW, many), planes)


async def _fill_store(folder: Path, fill: Fill, count: int) -> None:
    folder.mkdir(parents=True)
    async with open_disk(folder, StoreOptions()) as store:
        await fill(store, count)


async def _fill_messages(store: Store, count: int) -> None:
    keys = keys_of(QueueAddress(NAMESPACE, QUEUE))
    content = Content(PAYLOAD, None, len(PAYLOAD), sha256(PAYLOAD).digest())
    order = EnqueueOrder(keys.address, correlation_id="bench")
    message, state = new_message(order, content, QueuePolicy(), QueueLimits(), SteadyClock().now_ms())
    for first in range(0, count, FILL_RECORDS):
        writes = Writes()
        for _ in range(first, min(first + FILL_RECORDS, count)):
            add_new(writes, keys, uuid7(), message, state)
        writes.batch.fresh.update(writes.batch.puts)
        await store.commit(writes.batch)


async def _fill_leases(store: Store, count: int) -> None:
    now_ms = SteadyClock().now_ms()
    for first in range(0, count, FILL_RECORDS):
        writes = Writes()
        for number in range(first, min(first + FILL_RECORDS, count)):
            lease = Lease(
                lease_id=uuid7(),
                owner="bench",
                txn_id=new_xid(),
                expires_at_ms=now_ms + HOLD_S * 1000,
                fencing_token=1,
                updated_at_s=now_ms // 1000,
            )
            member = (NAMESPACE, f"held-{number:07d}")
            writes.put(LEASES.key(*member), lease.SerializeToString(deterministic=True))
            writes.put(HELD.key(lease.txn_id, *member), b"")
        writes.batch.fresh.update(writes.batch.puts)
        await store.commit(writes.batch)


# -- callers that wait


def _waited(many: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder_name, ExitStack() as stack:
        planes: list[Plane] = []
        lines: list[Line] = []
        for count in (FEW_WAITERS, many):
            folder = Path(folder_name) / str(count)
            folder.mkdir()
            planes.append(stack.enter_context(on_disk(folder, ROOT)))
            lines.append(stack.enter_context(Line(planes[-1])))
            for _ in range(count):
                lines[-1].join()
            _wait_for_waiters(planes[-1], count)
        yield _row(
            "callers that wait for one key", "a lock cycle on other keys", "lock", (FEW_WAITERS, many), planes
        )
        rss_mb = [_rss_mb(plane) for plane in planes]
        few_us = _per_hand_over_us(planes[0], lines[0], FEW_WAITERS * 9 // 10)
        many_us = _per_hand_over_us(planes[1], lines[1], min(HAND_OVERS, many * 9 // 10))
        yield Row(
            "callers that wait for one key",
            "a release that grants it to the next",
            FEW_WAITERS,
            many,
            few_us,
            many_us,
            many_us / few_us,
            *rss_mb,
        )


class Line:
    """The connection that holds the key, and those that wait for it."""

    def __init__(self, plane: Plane) -> None:
        self._address = urlsplit(plane.url)
        self._waiting = selectors.DefaultSelector()
        self._holder = self._asking()
        self._lease = _answer(self._holder)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *error: object) -> None:
        for key in list(self._waiting.get_map().values()):
            cast(socket.socket, key.fileobj).close()
        self._waiting.close()
        self._holder.close()

    def join(self) -> None:
        self._waiting.register(self._asking(), selectors.EVENT_READ)

    def hand_over(self) -> None:
        """Release; whichever waits first is answered with its lease."""
        ended = {name: self._lease[name] for name in ("lease_id", "txn_id")} | {"key": CONTENDED}
        token = f"X-Fencing-Token: {self._lease['fencing_token']}"
        self._holder.sendall(_request("/v1/release", ended, token))
        _answer(self._holder)
        self._holder.close()
        [(key, _)] = self._waiting.select(ANSWER_S_MAX)
        self._holder = cast(socket.socket, key.fileobj)
        self._waiting.unregister(self._holder)
        self._lease = _answer(self._holder)

    def _asking(self) -> socket.socket:
        asked = {"key": CONTENDED, "owner": "bench", "ttl_seconds": HOLD_S, "block_seconds": HOLD_S}
        connection = socket.create_connection((self._address.hostname, self._address.port), ANSWER_S_MAX)
        connection.sendall(_request("/v1/acquire", asked))
        return connection


def _wait_for_waiters(plane: Plane, count: int) -> None:
    until_s = time.monotonic() + ANSWER_S_MAX
    while (found := plane.counters()["holdfast_lease_waiters"]) != count:
        assert time.monotonic() < until_s, f"{found:.0f} callers of {count} wait"
        time.sleep(_POLL_S)


def _per_hand_over_us(plane: Plane, line: Line, count: int) -> float:
    before_s = plane.cpu_s()
    for _ in range(count):
        line.hand_over()
    after_s = plane.cpu_s()
    assert before_s is not None and after_s is not None, "this kernel does not tell CPU times"
    return (after_s - before_s) / count * 1e6


def _request(path: str, members: dict[str, Any], *headers: str) -> bytes:
    body = json.dumps(members).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: plane", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def _answer(connection: socket.socket) -> dict[str, Any]:
    """A small one, of which nothing else is on its way."""
    received = b""
    while b"\r\n\r\n" not in received or not received.endswith((b"}", b"}\n")):
        piece = connection.recv(1 << 16)
        assert piece, f"the connection ended after {received!r}"
        received += piece
    assert received.startswith(b"HTTP/1.1 200"), received
    found: dict[str, Any] = json.loads(received.split(b"\r\n\r\n", 1)[1])
    return found


# -- what is measured


def _row(name: str, operation: str, kind: str, counts: tuple[int, int], planes: Sequence[Plane]) -> Row:
    rounds = [[_cpu_us(plane, kind) for plane in planes] for _ in range(ROUNDS)]
    few_us, many_us = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(many / few for few, many in rounds)
    return Row(name, operation, *counts, few_us, many_us, ratio, _rss_mb(planes[0]), _rss_mb(planes[1]))


def _cpu_us(plane: Plane, kind: str) -> float:
    run = drive(plane, kind, concurrency=CLIENTS, seconds=SECONDS, keys=CLIENTS, load=c_load.command)
    assert run.cpu_us_per_operation is not None, "this kernel does not tell CPU times"
    return run.cpu_us_per_operation


def _rss_mb(plane: Plane) -> float:
    return float(psutil.Process(plane.pid).memory_info().rss) / 1e6
