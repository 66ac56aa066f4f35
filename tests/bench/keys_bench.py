"""What keys cost in etcd's way: a put beside an update of a document, a range beside a public read, and watches of many.

One plane on disk with all its hooks; the kinds take turns, each with a kilobyte of content and kept connections. The watchers
of the fan-out are connections of this process, which counts messages and parses none.
"""

import asyncio
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, cast
from urllib.parse import urlsplit

import uvloop

from holdfast.cli.bench.measure import BenchError, Run, drive
from tests.bench import c_load
from tests.bench.shapes import ROOT, Plane, on_disk

CONNECTIONS: Final = (16, 64)
WATCHERS: Final = (100, 1000)
EVENTS: Final = 100_000
"""Delivered in one fan-out, over all watchers."""
ROUNDS: Final = 5
SECONDS: Final = 1.0
YARDSTICKS: Final = {"put": "update", "range": "read"}
TO_YARDSTICK_MAX: Final = {"put": 1.0, "range": 1.3}
MESSAGE_S_MAX: Final = 60.0
_WATCH: Final = b'{"create_request":{"key":"dy8=","range_end":"dzA="}}'
_PUT: Final = b'{"key":"dy8x","value":"eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"}'


@dataclass(frozen=True, slots=True)
class Row:
    """One operation at so many connections; medians of all rounds."""

    kind: str
    connections: int
    rate: float
    cpu_us: float
    cpu_to_yardstick: float
    """Of the same round; 1 for a yardstick."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """One key is put, one put after the other, while so many watch."""

    watchers: int
    events_per_s: float
    cpu_us: float
    """Server CPU per event that was delivered."""


@dataclass(frozen=True, slots=True)
class Result:
    rows: list[Row]
    fan_outs: list[FanOut]


def run(*, rounds: int = ROUNDS, events: int = EVENTS) -> Result:
    if c_load.find_compiler() is None:
        raise BenchError("the load of etcd's requests is in C, and no compiler was found")
    with tempfile.TemporaryDirectory(prefix="holdfast-keys-") as name, on_disk(Path(name), ROOT) as plane:
        rows = [row for connections in CONNECTIONS for row in _rows(plane, connections, rounds)]
        return Result(rows, [uvloop.run(_fan_out(plane, watchers, events)) for watchers in WATCHERS])


def _rows(plane: Plane, connections: int, rounds: int) -> list[Row]:
    # So that there is something to read and to range over.
    drive(plane, "lock", concurrency=connections, seconds=0.5, keys=connections, load=c_load.command)
    _turn(plane, "put", connections)
    kinds = [kind for pair in YARDSTICKS.items() for kind in reversed(pair)]
    measured: dict[str, list[Run]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            measured[kind].append(_turn(plane, kind, connections))
    return [_row(kind, connections, measured) for kind in kinds]


def _turn(plane: Plane, kind: str, connections: int) -> Run:
    return drive(plane, kind, concurrency=connections, seconds=SECONDS, keys=connections, load=c_load.command)


def _row(kind: str, connections: int, measured: dict[str, list[Run]]) -> Row:
    runs, yardsticks = measured[kind], measured[YARDSTICKS.get(kind, kind)]
    return Row(
        kind,
        connections,
        statistics.median(run.load.operations / run.load.seconds for run in runs),
        statistics.median(map(_cpu_us, runs)),
        statistics.median(_cpu_us(run) / _cpu_us(other) for run, other in zip(runs, yardsticks, strict=True)),
    )


def _cpu_us(one: Run) -> float:
    assert one.cpu_us_per_operation is not None, "this kernel does not tell CPU times"
    return one.cpu_us_per_operation


# -- watches


class _Crowd:
    """What all watchers have been told so far."""

    def __init__(self) -> None:
        self.created = 0
        self.events = 0
        self._wanted = (0, 0)
        self._is_there = asyncio.Event()

    def told(self, chunk: bytes) -> None:
        self.created += chunk.count(b'"created":true')
        self.events += chunk.count(b'"events"')
        if self.created >= self._wanted[0] and self.events >= self._wanted[1]:
            self._is_there.set()

    async def until(self, created: int, events: int) -> None:
        self._wanted = created, events
        self._is_there.clear()
        self.told(b"")
        async with asyncio.timeout(MESSAGE_S_MAX):
            await self._is_there.wait()


class _Watcher(asyncio.Protocol):
    def __init__(self, crowd: _Crowd) -> None:
        self._crowd = crowd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        cast(asyncio.WriteTransport, transport).write(_request(b"/v3/watch", _WATCH))

    def data_received(self, data: bytes) -> None:
        self._crowd.told(data)


async def _fan_out(plane: Plane, watchers: int, events: int) -> FanOut:
    loop, crowd = asyncio.get_running_loop(), _Crowd()
    address = urlsplit(plane.url)
    assert address.hostname is not None and address.port is not None
    host, port = address.hostname, address.port
    opened = [await loop.create_connection(lambda: _Watcher(crowd), host, port) for _ in range(watchers)]
    await crowd.until(watchers, 0)
    reader, writer = await asyncio.open_connection(host, port)
    puts = events // watchers
    began_s, cpu_s = monotonic(), _cpu_s(plane)
    for _ in range(puts):
        writer.write(_request(b"/v3/kv/put", _PUT))
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
    await crowd.until(watchers, puts * watchers)
    seconds, cpu_s = monotonic() - began_s, _cpu_s(plane) - cpu_s
    for transport, _ in opened:
        transport.close()
    writer.close()
    delivered = puts * watchers
    return FanOut(watchers, delivered / seconds, cpu_s / delivered * 1e6)


def _cpu_s(plane: Plane) -> float:
    spent = plane.cpu_s()
    assert spent is not None, "this kernel does not tell CPU times"
    return spent


def _request(path: bytes, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: plane\r\ncontent-length: %d\r\n\r\n%b" % (path, len(body), body)
