"""Does back-pressure help and never hurt: throughput at full load, and latency at twice the capacity, with and without.

A lock cycle is an acquire and a release of a key of its own. Full load: so many clients that the server never rests,
by turns with and without. Overload: cycles begin by the clock, twice as many as the same server finished at full load
just before, whether or not the earlier ones are answered; the time of a cycle counts from the moment when it was due.
On a machine that does other things as well, trust the ratio of CPU times more than that of throughputs.
"""

import asyncio
import itertools
import re
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import psutil
import uvloop

CLIENTS: Final = 64
CONNECTIONS_MAX: Final = 2000
ROUNDS: Final = 6
ROUND_S: Final = 0.6
WARM_UP_S: Final = 0.3
OVERLOAD_S: Final = 3.0
GRACE_S: Final = 2.0
OVERLOAD: Final = 2.0
RATIO_MIN: Final = 0.95

_numbers: Final = itertools.count()  # A key for each connection: one that was cut off leaves its lease held.
_BATCH: Final = 50
_TICK_S: Final = 0.002
_CONTENT_LENGTH: Final = re.compile(rb"content-length: (\d+)")
_GRANT: Final = re.compile(rb'"lease_id":"(\w+)","txn_id":"(\w+)".*"fencing_token":(\d+)')


@dataclass(slots=True)
class Outcome:
    """What one run saw; times in seconds from when a cycle was due to when its lease was released."""

    elapsed_s: float = 0.0
    started: int = 0
    refused: int = 0
    times_s: list[float] = field(default_factory=list[float])

    @property
    def cycles_per_s(self) -> float:
        return len(self.times_s) / self.elapsed_s

    def percentile_ms(self, share: float) -> float:
        times_s = sorted(self.times_s)
        return times_s[min(len(times_s) - 1, int(share * len(times_s)))] * 1000 if times_s else 0.0


class LockClient(asyncio.Protocol):
    """One connection that runs lock cycles on one key, each when told to."""

    def __init__(self, key: str) -> None:
        body = b'{"key":"%b","owner":"bench","ttl_seconds":60,"block_seconds":-1}' % key.encode()
        self._acquire = _post(b"/v1/acquire", body)
        self._key = key.encode()
        self.on_end: Callable[[LockClient, float | None], None] = lambda client, took_s: None
        self._due_s = 0.0
        self._is_releasing = False
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the base class.

    async def open(self, port: int) -> None:
        """Connect, and run a first cycle."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", port)
        is_done = loop.create_future()
        self.on_end = lambda client, took_s: is_done.set_result(None)
        self.begin(time.monotonic())
        await is_done

    def begin(self, due_s: float) -> None:
        self._due_s = due_s
        self._send(self._acquire)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def _send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = _CONTENT_LENGTH.search(head)
        if not end or length is None or len(body) < int(length[1]):
            return
        self._received = b""
        self._take(head, body)

    def _take(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"HTTP/1.1 429"):
            assert not self._is_releasing, "a release must never be refused"
            self.on_end(self, None)
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"unexpected answer: {head[:100]!r} {body[:200]!r}")
        if self._is_releasing:
            self._is_releasing = False
            self.on_end(self, time.monotonic() - self._due_s)
            return
        grant = _GRANT.search(body)
        assert grant is not None
        self._is_releasing = True
        release = b'{"key":"%b","lease_id":"%b","txn_id":"%b"}' % (self._key, grant[1], grant[2])
        self._send(_post(b"/v1/release", release, b"X-Fencing-Token: %b\r\n" % grant[3]))


def _post(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: bench\r\n%bContent-Length: %d\r\n\r\n%b" % (
        path,
        headers,
        len(body),
        body,
    )


async def _connect(port: int, count: int) -> list[LockClient]:
    """Connections that each have had an answer: one that the server has yet to accept would lose its first packets."""
    clients: list[LockClient] = []
    while len(clients) < count:
        batch = [LockClient(f"bench-{next(_numbers)}") for _ in range(min(_BATCH, count - len(clients)))]
        await asyncio.gather(*(client.open(port) for client in batch))
        clients += batch
    return clients


async def full_load(port: int, duration_s: float) -> Outcome:
    """Every client begins its next cycle when the last one ended."""
    outcome = Outcome()

    def on_end(client: LockClient, took_s: float | None) -> None:
        if took_s is None:
            outcome.refused += 1
        else:
            outcome.times_s.append(took_s)
        client.begin(time.monotonic())

    clients = await _connect(port, CLIENTS)
    began_s = time.monotonic()
    for client in clients:
        client.on_end = on_end
        client.begin(began_s)
    await asyncio.sleep(duration_s)
    outcome.elapsed_s = time.monotonic() - began_s
    for client in clients:
        client.close()
    return outcome


async def overload(port: int, cycles_per_s: float, duration_s: float) -> Outcome:
    """Cycles begin by the clock; one that finds no idle connection waits for one, and its time counts already."""
    outcome = Outcome()
    due: deque[float] = deque()
    idle: list[LockClient] = []
    all_idle = asyncio.Event()

    def on_end(client: LockClient, took_s: float | None) -> None:
        if took_s is None:
            outcome.refused += 1
        else:
            outcome.times_s.append(took_s)
        if due:
            client.begin(due.popleft())
        else:
            idle.append(client)
            if len(idle) == CONNECTIONS_MAX:
                all_idle.set()

    clients = await _connect(port, CONNECTIONS_MAX)
    for client in clients:
        client.on_end = on_end
    idle.extend(clients)
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < duration_s:
        for _ in range(int(passed_s * cycles_per_s) - outcome.started):
            due.append(began_s + outcome.started / cycles_per_s)
            outcome.started += 1
        while due and idle:
            idle.pop().begin(due.popleft())
        await asyncio.sleep(_TICK_S)
    if len(idle) < len(clients):
        all_idle.clear()
        with suppress(TimeoutError):  # The slowest cycles count too, but are not waited for for ever.
            await asyncio.wait_for(all_idle.wait(), GRACE_S)
    outcome.elapsed_s = time.monotonic() - began_s
    for client in clients:
        client.close()
    return outcome


@dataclass(frozen=True, slots=True)
class Server:
    """A running plane."""

    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def serving(*flags: str) -> Iterator[Server]:
    """A plane over a store in memory, so that the processor is what it runs out of."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    program = str(Path(sys.executable).with_name("holdfast"))
    command = [program, "serve", "--store", "mem://", "--disable-storage-encryption", "--drain-grace", "0s"]
    with subprocess.Popen(
        [*command, "--log-level", "error", "--listen", f"127.0.0.1:{port}", *flags], stdout=subprocess.DEVNULL
    ) as process:
        try:
            _wait_until_up(port)
            yield Server(port, psutil.Process(process.pid))
        finally:
            process.terminate()


def _wait_until_up(port: int) -> None:
    ends_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > ends_s:
                raise
            time.sleep(0.05)
        else:
            return


def run() -> dict[str, dict[str, float]]:
    """All figures, by what they are; both servers are up all the time, and measured by turns."""
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    with ExitStack() as stack:
        servers = {
            "on": stack.enter_context(serving()),
            "off": stack.enter_context(serving("--qrf-disabled")),
        }
        full = _full_load_figures(servers)
        overloads = {f"overload, {name}": _overload_figures(server) for name, server in servers.items()}
    ratios = {
        "throughput": full["on"]["cycles_per_s"] / full["off"]["cycles_per_s"],
        "cpu": full["off"]["cpu_us_per_cycle"] / full["on"]["cpu_us_per_cycle"],
    }
    loads = {f"full load, {name}": figures for name, figures in full.items()}
    return {**loads, f"on to off (at least {RATIO_MIN})": ratios, **overloads}


def _full_load_figures(servers: dict[str, Server]) -> dict[str, dict[str, float]]:
    """The order changes from round to round, so that neither has the better half of a changing machine."""
    throughput: dict[str, list[float]] = {name: [] for name in servers}
    cpu_us: dict[str, list[float]] = {name: [] for name in servers}
    for server in servers.values():
        uvloop.run(full_load(server.port, WARM_UP_S))
    for number in range(ROUNDS):
        for name, server in list(servers.items())[:: -1 if number % 2 else 1]:
            before_s = server.cpu_s()
            outcome = uvloop.run(full_load(server.port, ROUND_S))
            throughput[name].append(outcome.cycles_per_s)
            cpu_us[name].append((server.cpu_s() - before_s) * 1e6 / len(outcome.times_s))
    return {
        name: {
            "cycles_per_s": statistics.median(throughput[name]),
            "cpu_us_per_cycle": min(cpu_us[name]),  # Whatever else the machine does can only add to it.
        }
        for name in servers
    }


def _overload_figures(server: Server) -> dict[str, float]:
    capacity = uvloop.run(full_load(server.port, ROUND_S)).cycles_per_s
    outcome = uvloop.run(overload(server.port, OVERLOAD * capacity, OVERLOAD_S))
    return {
        "due_per_s": outcome.started / OVERLOAD_S,
        "accepted_per_s": outcome.cycles_per_s,
        "refused_per_s": outcome.refused / outcome.elapsed_s,
        "p50_ms": outcome.percentile_ms(0.5),
        "p99_ms": outcome.percentile_ms(0.99),
    }


def main() -> None:
    for name, figures in run().items():
        texts = [f"{figure} {value:.2f}" for figure, value in figures.items()]
        print(f"{name}: {', '.join(texts)}")  # noqa: T201 - a bench prints


if __name__ == "__main__":
    main()
