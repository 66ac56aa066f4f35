"""What a transaction over two keys costs: in one process on disk and on PostgreSQL, and split into five processes."""

import asyncio
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from holdfast.common.ids import new_xid
from holdfast.common.role import SERVICES, Role
from tests.bench.http_bench import cpu_s
from tests.bench.store_bench import empty_postgres
from tests.infra.program import free_port
from tests.system.cli import serving
from tests.system.lease_wire import WireClient

CLIENTS: Final = 8
TRANSACTIONS_DEFAULT: Final = 800
WARM_UP: Final = 80
READY_S: Final = 30
_KEYS: Final = ("first", "second")
_SECRET: Final = "a secret for the bench alone"


class Shape(NamedTuple):
    """A running plane: where it listens, and every process of it."""

    port: int
    processes: list[psutil.Process]

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.processes))


@dataclass(frozen=True, slots=True)
class Row:
    """One shape of the plane. A transaction is two acquires, two updates and the release that commits both keys."""

    name: str
    transactions_per_s: float
    commit_p50_ms: float
    commit_p99_ms: float
    cpu_us: float
    """Of all processes of the plane together, per transaction; PostgreSQL's own is not in it."""


def run(transactions: int = TRANSACTIONS_DEFAULT) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        home = Path(folder)
        with _one_process(home, f"disk://{home}/store") as shape:
            rows = [_measure("one process, disk", shape, transactions)]
        with empty_postgres() as (store_url, _), _one_process(home, store_url) as shape:
            rows.append(_measure("one process, PostgreSQL", shape, transactions))
        with empty_postgres() as (store_url, _), _split(home, store_url) as shape:
            rows.append(_measure("five processes, PostgreSQL", shape, transactions))
    return {"rows": [asdict(row) for row in rows]}


@contextmanager
def _one_process(home: Path, store_url: str) -> Iterator[Shape]:
    port = free_port()
    flags = ("--listen", f"127.0.0.1:{port}", "--store", store_url, "--qrf-disabled")
    with serving(home, *flags) as server:
        _wait_until_ready(port)
        yield Shape(port, [psutil.Process(server.process.pid)])


@contextmanager
def _split(home: Path, store_url: str) -> Iterator[Shape]:
    ports = {role: free_port() for role in (*SERVICES, Role.GATEWAY)}
    peers = [word for role in SERVICES for word in (f"--peer-{role}", f"http://127.0.0.1:{ports[role]}")]
    with ExitStack() as stack:
        processes: list[psutil.Process] = []
        for role, port in ports.items():
            flags = [role, "--listen", f"127.0.0.1:{port}", "--qrf-disabled", *peers]
            store = [] if role == Role.GATEWAY else ["--store", store_url]
            server = stack.enter_context(serving(home, *flags, *store, HOLDFAST_INTERNAL_SECRET=_SECRET))
            processes.append(psutil.Process(server.process.pid))
        _wait_until_ready(ports[Role.GATEWAY])
        yield Shape(ports[Role.GATEWAY], processes)


def _wait_until_ready(port: int) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def _measure(name: str, shape: Shape, transactions: int) -> Row:
    asyncio.run(_load(shape.port, WARM_UP))
    cpu_before_s, started_s = shape.cpu_s(), time.perf_counter()
    commits_s = asyncio.run(_load(shape.port, transactions))
    elapsed_s, spent_s = time.perf_counter() - started_s, shape.cpu_s() - cpu_before_s
    percentiles = statistics.quantiles(commits_s, n=100)
    return Row(
        name,
        transactions_per_s=round(len(commits_s) / elapsed_s, 1),
        commit_p50_ms=round(percentiles[49] * 1e3, 2),
        commit_p99_ms=round(percentiles[98] * 1e3, 2),
        cpu_us=round(spent_s / len(commits_s) * 1e6, 1),
    )


async def _load(port: int, transactions: int) -> list[float]:
    """How long each release took, from clients that are never in each other's way."""
    each = transactions // CLIENTS
    done = await asyncio.gather(*(_client(port, f"client-{number}", each) for number in range(CLIENTS)))
    return [commit_s for commits_s in done for commit_s in commits_s]


async def _client(port: int, owner: str, transactions: int) -> list[float]:
    wire = await WireClient.connect(port)
    try:
        return [await _transaction(wire, owner) for _ in range(transactions)]
    finally:
        wire.close()


async def _transaction(wire: WireClient, owner: str) -> float:
    txn_id = new_xid()
    leases = [await wire.acquire(f"{owner}-{key}", owner, ttl_s=60, txn_id=txn_id) for key in _KEYS]
    for lease in leases:
        assert lease is not None
        updated = await wire.update(lease, {"state": "open", "amount": 42})
        assert updated.status == 200, updated
    assert leases[0] is not None
    started_s = time.perf_counter()
    released = await wire.release(leases[0])
    assert released.status == 200, released
    return time.perf_counter() - started_s
