"""The processes that `holdfast bench` starts, and what it reads off them: CPU time, counters, the disk's own speed."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import urlopen

from holdfast.cli.bench.load import DOCUMENT, LoadJob, LoadResult, key_name
from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.index.terms import Terms
from holdfast.state.layer.index.writer import IndexStates
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.disk.segment import allocate
from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Transaction
from holdfast.storage.records_pb2 import Payload

PROGRAM: Final = ("-c", "from holdfast.cli.main import app; app()")
SERVE: Final = (*PROGRAM, "serve", "--listen", "127.0.0.1:0")
ECHO: Final = ("-m", "holdfast.cli.bench.echo")
STREAMED: Final = frozenset({"queue-subscribe", "queue-wake"})
NAMESPACE: Final = "default"
FILL_RECORDS: Final = 500
STOP_S: Final = 20.0
RAW_BYTES: Final = 16 << 20


class BenchError(Exception):
    """A process of the benchmark did not do its part; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is; `pid` is unknown for one that was running already."""

    url: str
    pid: int | None

    def cpu_s(self) -> float | None:
        """CPU time of all its threads so far, where the kernel tells."""
        try:
            stats = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/schedstat")]
        except OSError:
            return None
        return sum(int(stat.split()[0]) for stat in stats) / 1e9 if stats else None

    def counters(self) -> dict[str, float]:
        """The plain numbers of its metrics, by name."""
        with urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
        return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}


def unconfigured() -> dict[str, str]:
    """This process's environment without the settings in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


@contextmanager
def started(
    folder: Path, words: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A server of our own, for the length of the block; free of the caller's settings unless told otherwise."""
    variables = unconfigured() if environment is None else environment
    log_path = folder / "server.log"
    with log_path.open("a") as log:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        announcement = process.stdout.readline().split()
        if announcement[:4] != ["holdfast", "is", "ready", "at"]:
            raise BenchError(f"the server did not start: {log_path.read_text()[-2000:]}")
        yield Server(announcement[4], process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class Run:
    """A load and what the server spent on it."""

    load: LoadResult
    cpu_s: float | None
    counters: dict[str, float]

    @property
    def cpu_us_per_request(self) -> float | None:
        return None if self.cpu_s is None else self.cpu_s / max(self.load.requests, 1) * 1e6

    @property
    def cpu_us_per_operation(self) -> float | None:
        return None if self.cpu_s is None else self.cpu_s / max(self.load.operations, 1) * 1e6

    def per_operation(self, counter: str) -> float:
        return self.counters.get(counter, 0.0) / max(self.load.operations, 1)


LoadCommand = Callable[[LoadJob], Sequence[str]]
"""The words of a program that does such a job: `begin` when it is warm, and its LoadResult as JSON at the end."""


def python_load(job: LoadJob) -> Sequence[str]:
    module = "holdfast.cli.bench.queue.load" if job.kind in STREAMED else "holdfast.cli.bench.load"
    return [sys.executable, "-m", module, json.dumps(asdict(job))]


def drive(
    server: Server,
    kind: str,
    *,
    concurrency: int,
    seconds: float,
    keys: int,
    is_keep_alive: bool = True,
    is_fresh_keys: bool = False,
    load: LoadCommand = python_load,
) -> Run:
    """Put a load on the server, from a process of its own."""
    address = urlsplit(server.url)
    if address.scheme != "http" or address.hostname is None:
        raise BenchError(f"{server.url}: only plain http:// addresses can be measured")
    job = LoadJob(
        address.hostname, address.port or 80, kind, concurrency, seconds, keys, is_keep_alive, is_fresh_keys
    )
    with subprocess.Popen(load(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        counters, cpu_s = server.counters(), server.cpu_s()
        told = process.stdout.readline()
        cpu_end_s, counters_end = server.cpu_s(), server.counters()
        if not told:
            raise BenchError(f"the load ended early: {process.stderr.read()[-1000:]}")
    spent_s = None if cpu_s is None or cpu_end_s is None else cpu_end_s - cpu_s
    grown = {name: value - counters.get(name, 0.0) for name, value in counters_end.items()}
    return Run(LoadResult(**json.loads(told)), spent_s, grown)


def fill(folder: Path, keys: int) -> None:
    """A store in which every key has been leased and written once, without going through a server."""
    asyncio.run(_fill(folder, keys))


async def _fill(folder: Path, keys: int) -> None:
    content = Payload(inline=DOCUMENT, size_bytes=len(DOCUMENT))
    document = Document(version=1, etag=sha256(DOCUMENT).hexdigest(), content=content, updated_at_s=1)
    async with open_disk(folder, StoreOptions()) as store:
        for first in range(0, keys, FILL_RECORDS):
            names = [key_name(number) for number in range(first, min(first + FILL_RECORDS, keys))]

            def write(tx: Transaction, names: list[str] = names) -> None:
                for name in names:
                    LEASES.put(tx, Lease(fencing_token=1, updated_at_s=1), NAMESPACE, name)
                    DOCUMENTS.put(tx, document, NAMESPACE, name)

            await store.transact(write)

        def leave_unindexed(tx: Transaction) -> None:
            IndexStates(store).put_format(tx, Terms().format)

        # Nothing here asks the index; making it of all these documents would be measured as part of the load.
        await store.transact(leave_unindexed)


def raw_syncs_per_s(folder: Path, seconds: float) -> float:
    """What the disk allows: one record of a kilobyte after the other, each synced, with nothing around it."""
    path = folder / "raw.log"
    allocate(path, RAW_BYTES)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        record, offset, count = os.urandom(len(DOCUMENT)), 0, 0
        began_s = time.perf_counter()
        while (elapsed_s := time.perf_counter() - began_s) < seconds:
            os.pwrite(descriptor, record, offset)
            os.fdatasync(descriptor)
            offset = (offset + len(record)) % (RAW_BYTES - len(record))
            count += 1
        return count / elapsed_s
    finally:
        os.close(descriptor)
        path.unlink()
