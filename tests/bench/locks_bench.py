"""Locks over TCP: a lock and its release on kept connections, beside a bare skeleton (`lock_skeleton`), in turns; and what idle
connections weigh.
"""

import json
import socket
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil

from holdfast.cli.bench.load import WARM_UP_S, LoadJob, LoadResult
from holdfast.cli.bench.measure import SERVE, BenchError, Server, started, unconfigured
from tests.bench import c_load
from tests.bench.shapes import ROOT
from tests.infra.program import free_port

ROUNDS: Final = 7
SECONDS: Final = 1.0
CLIENTS: Final = (16, 100)
RATE_TO_SKELETON_MIN: Final = 0.7
CPU_TO_SKELETON_MAX: Final = 1.4
IDLE_CONNECTIONS: Final = 10_000
IDLE_KB_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class LinePort:
    """A server and its port for locks."""

    server: Server
    port: int


@dataclass(frozen=True, slots=True)
class Turn:
    rate: float
    cpu_us: float
    """Of the server, for one lock and its release."""
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Row:
    clients: int
    rate: float
    cpu_us: float
    p99_ms: float
    skeleton_rate: float
    skeleton_cpu_us: float
    rate_to_skeleton: float
    cpu_to_skeleton: float


@dataclass(frozen=True, slots=True)
class LocksResult:
    rows: Sequence[Row]
    idle_connections: int
    idle_kb: float
    """Of RSS, for each of them."""


def run(
    *, rounds: int = ROUNDS, seconds: float = SECONDS, idle_connections: int = IDLE_CONNECTIONS
) -> LocksResult:
    if c_load.find_compiler() is None:
        raise BenchError("the load of locks is written in C: install a C compiler")
    with tempfile.TemporaryDirectory(prefix="holdfast-locks-") as name, ExitStack() as stack:
        folder = Path(name)
        plane = stack.enter_context(lock_plane(folder))
        skeleton = stack.enter_context(lock_skeleton(folder))
        idle_kb = _idle_kb(plane, idle_connections)
        turns: dict[int, list[tuple[Turn, Turn]]] = {clients: [] for clients in CLIENTS}
        for number in range(rounds):
            for clients, pairs in turns.items():
                # The one that comes second finds the machine as the first left it: they change places.
                order = (plane, skeleton) if number % 2 else (skeleton, plane)
                found = {one: _turn(one, clients, seconds) for one in order}
                pairs.append((found[plane], found[skeleton]))
    return LocksResult([_row(clients, pairs) for clients, pairs in turns.items()], idle_connections, idle_kb)


@contextmanager
def lock_plane(folder: Path) -> Iterator[LinePort]:
    port = free_port()
    words = (*SERVE, "--store", "mem://", "--qrf-disabled", "--tcp-listen", f"127.0.0.1:{port}")
    with started(folder, words) as server:
        yield LinePort(server, port)


@contextmanager
def lock_skeleton(folder: Path) -> Iterator[LinePort]:
    environment = {**unconfigured(), "PYTHONPATH": str(ROOT)}
    with started(folder, ("-m", "tests.bench.lock_skeleton"), environment=environment) as server:
        port = urlsplit(server.url).port
        assert port is not None, "it tells its port"
        yield LinePort(server, port)


def _turn(asked: LinePort, clients: int, seconds: float) -> Turn:
    job = LoadJob("127.0.0.1", asked.port, c_load.LINES, clients, seconds, clients)
    with subprocess.Popen(
        c_load.command(job, warm_up_s=min(WARM_UP_S, seconds)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        before_s = asked.server.cpu_s()
        told = process.stdout.readline()
        after_s = asked.server.cpu_s()
        if not told:
            raise BenchError(f"the load ended early: {process.stderr.read()[-1000:]}")
    assert before_s is not None, "this kernel does not tell CPU times"
    assert after_s is not None, "the server is still there"
    load = LoadResult(**json.loads(told))
    cpu_us = (after_s - before_s) / max(load.operations, 1) * 1e6
    return Turn(load.operations / load.seconds, cpu_us, load.p99_ms)


def _row(clients: int, pairs: Sequence[tuple[Turn, Turn]]) -> Row:
    median = statistics.median
    return Row(
        clients,
        median(plane.rate for plane, _ in pairs),
        median(plane.cpu_us for plane, _ in pairs),
        median(plane.p99_ms for plane, _ in pairs),
        median(skeleton.rate for _, skeleton in pairs),
        median(skeleton.cpu_us for _, skeleton in pairs),
        median(plane.rate / skeleton.rate for plane, skeleton in pairs),
        median(plane.cpu_us / skeleton.cpu_us for plane, skeleton in pairs),
    )


def _idle_kb(asked: LinePort, count: int) -> float:
    """Each was asked something once: what only the first request of a connection needs is there."""
    process = psutil.Process(asked.server.pid)
    with ExitStack() as stack:
        before = process.memory_info().rss
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", asked.port), timeout=10))
            client.sendall(b"ping\n_\n_\n")
            if client.recv(16) != b"ok\n":
                raise BenchError("a connection was not served: is the number of open files limited?")
        return (process.memory_info().rss - before) / 1024 / count
