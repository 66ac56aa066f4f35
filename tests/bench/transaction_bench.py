"""What a transaction over two keys costs: in one process on disk and on PostgreSQL, and split into five processes."""

import asyncio
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast.common.ids import new_xid
from tests.bench.shapes import ROOT, SHAPES, Plane
from tests.system.leases.wire import WireClient

CLIENTS: Final = 8
TRANSACTIONS_DEFAULT: Final = 800
WARM_UP: Final = 80
NAMES: Final = {
    "disk": "one process, disk",
    "postgres": "one process, PostgreSQL",
    "split": "five processes, PostgreSQL",
}
_KEYS: Final = ("first", "second")


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
    rows: list[Row] = []
    for shape, name in NAMES.items():
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            with SHAPES[shape](Path(folder), ROOT) as plane:
                rows.append(_measure(name, plane, transactions))
    return {"rows": [asdict(row) for row in rows]}


def _measure(name: str, plane: Plane, transactions: int) -> Row:
    port = urlsplit(plane.url).port
    assert port is not None
    asyncio.run(_load(port, WARM_UP))
    cpu_before_s, started_s = plane.cpu_s(), time.perf_counter()
    commits_s = asyncio.run(_load(port, transactions))
    elapsed_s, cpu_s = time.perf_counter() - started_s, plane.cpu_s()
    assert cpu_before_s is not None, "this kernel does not tell CPU times"
    assert cpu_s is not None
    percentiles = statistics.quantiles(commits_s, n=100)
    return Row(
        name,
        transactions_per_s=round(len(commits_s) / elapsed_s, 1),
        commit_p50_ms=round(percentiles[49] * 1e3, 2),
        commit_p99_ms=round(percentiles[98] * 1e3, 2),
        cpu_us=round((cpu_s - cpu_before_s) / len(commits_s) * 1e6, 1),
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
