"""Synced commits per second, beside a raw synced log in the same run; and how long the event loop stands still."""

import asyncio
import random
import secrets
import tempfile
import time
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg
import uvloop

from holdfast.storage.codec.encoded import EncodedStore
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.disk import segment
from holdfast.storage.disk.journal import DiskJournal
from holdfast.storage.keys import pack
from holdfast.storage.local import layout
from holdfast.storage.local.pending import PendingBatch
from holdfast.storage.local.store import LocalStore
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, Store
from tests.bench.raw_log import RawLog
from tests.infra.postgres import provide_postgres

DISK: Final = "disk"
SEALED: Final = "disk, encrypted"
POSTGRES: Final = "PostgreSQL"
FULL_SPEED: Final = "full speed"
WRITERS: Final = (1, 16, 64)
VALUE_BYTES: Final = 300
KEYS: Final = 100_000
WARM_UP_S: Final = 0.5
SECONDS_DEFAULT: Final = 2.0
TIMER_S: Final = 0.001
STEADY_PER_S: Final = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stall:
    """How late a timer of one millisecond was."""

    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class StoreRow:
    """One backend under one load. `cpu_us_per_commit` is of this process alone, all its threads."""

    backend: str
    writers: int
    raw_syncs_per_s: float
    commits_per_s: float
    cpu_us_per_commit: float
    syncs_per_commit: float | None  # None where the backend does not tell.

    @property
    def ratio_to_raw(self) -> float:
        return self.commits_per_s / self.raw_syncs_per_s


@dataclass(frozen=True, slots=True)
class StoreResult:
    """All rows, and the stalls of the event loop by what it was doing."""

    rows: list[StoreRow]
    stalls: dict[str, Stall]
    postgres_origin: str

    def row(self, backend: str, writers: int) -> StoreRow:
        return next(row for row in self.rows if (row.backend, row.writers) == (backend, writers))

    def speed_up(self, row: StoreRow) -> float:
        """Commits of these writers to commits of one."""
        return row.commits_per_s / self.row(row.backend, 1).commits_per_s


class Load:
    """Writers that commit one small record after the other, on keys spread over the whole range.

    With `per_s` they pause, so that all of them together come to about this rate.
    """

    def __init__(self, store: Store, writers: int, *, per_s: float | None = None) -> None:
        self.commits = 0
        self._store = store
        self._writers = writers
        self._pause_s = None if per_s is None else writers / per_s
        self._is_over = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as tasks:
            for seed in range(self._writers):
                tasks.create_task(self._write(seed))
            await asyncio.sleep(WARM_UP_S)
            yield
            self._is_over = True

    async def _write(self, seed: int) -> None:
        chooser = random.Random(seed)
        value = chooser.randbytes(VALUE_BYTES)
        while not self._is_over:
            await self._store.commit(Batch(puts={_key(chooser.randrange(KEYS)): value}))
            self.commits += 1
            if self._pause_s is not None:
                await asyncio.sleep(chooser.expovariate(1 / self._pause_s))


class _Window(NamedTuple):
    commits_per_s: float
    cpu_us_per_commit: float
    syncs_per_commit: float | None


def run(seconds: float = SECONDS_DEFAULT) -> StoreResult:
    """Measure every backend under every load, a raw log before and after each; then the stalls."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name, empty_postgres() as (url, origin):
        folder = Path(name)
        urls = {DISK: f"disk://{folder}/plain", SEALED: f"disk://{folder}/sealed", POSTGRES: url}
        return StoreResult(_rows(folder, urls, seconds), _stalls(urls, seconds), origin)


def _rows(folder: Path, urls: dict[str, str], seconds: float) -> list[StoreRow]:
    rows: list[StoreRow] = []
    with RawLog(folder, _journal_record_bytes()) as raw:
        raw_before = raw.syncs_per_s(seconds)
        for backend, url in urls.items():
            for writers in WRITERS:
                window = _run(_commits(url, _options(backend), writers, seconds))
                raw_after = raw.syncs_per_s(seconds)
                rows.append(StoreRow(backend, writers, (raw_before + raw_after) / 2, *window))
                raw_before = raw_after
    return rows


def _stalls(urls: dict[str, str], seconds: float) -> dict[str, Stall]:
    writers = WRITERS[-1]
    stalls = {"nothing to do": _run(_stall(seconds))}
    for backend in (DISK, SEALED):
        for per_s, pace in ((STEADY_PER_S, f"{STEADY_PER_S} commits/s"), (None, FULL_SPEED)):
            work = _stall_under_load(urls[backend], _options(backend), writers, per_s, seconds)
            stalls[f"{backend}, {writers} writers, {pace}"] = _run(work)
    return stalls


def _options(backend: str) -> StoreOptions:
    return StoreOptions(keyring=Keyring(bytes(range(32))) if backend == SEALED else None)


async def _commits(url: str, options: StoreOptions, writers: int, seconds: float) -> _Window:
    async with open_store(url, options) as store:
        load = Load(store, writers)
        journal = _journal(store)
        async with load.running():
            before = (load.commits, time.process_time(), _syncs(journal), time.perf_counter())
            await asyncio.sleep(seconds)
            after = (load.commits, time.process_time(), _syncs(journal), time.perf_counter())
    commits, cpu_s, syncs, elapsed_s = (late - early for early, late in zip(before, after, strict=True))
    return _Window(
        commits / elapsed_s, cpu_s / commits * 1e6, syncs / commits if journal is not None else None
    )


async def _stall_under_load(
    url: str, options: StoreOptions, writers: int, per_s: float | None, seconds: float
) -> Stall:
    async with open_store(url, options) as store, Load(store, writers, per_s=per_s).running():
        return await _stall(seconds)


async def _stall(seconds: float) -> Stall:
    late_ms: list[float] = []
    end_s = time.perf_counter() + seconds
    while (began_s := time.perf_counter()) < end_s:
        await asyncio.sleep(TIMER_S)
        late_ms.append(max(0.0, (time.perf_counter() - began_s - TIMER_S) * 1000))
    cuts = quantiles(late_ms, n=100)
    return Stall(cuts[49], cuts[98], max(late_ms))


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _key(number: int) -> bytes:
    return pack(("bench", f"key-{number:06d}"))


def _journal(store: Store) -> DiskJournal | None:
    inner = store.inner if isinstance(store, EncodedStore) else store
    journal = inner._journal if isinstance(inner, LocalStore) else None
    return journal if isinstance(journal, DiskJournal) else None


def _syncs(journal: DiskJournal | None) -> int:
    return 0 if journal is None else journal.syncs


def _journal_record_bytes() -> int:
    """What the journal writes for one commit of this load."""
    stored = layout.encode_stored(Record(_key(0), bytes(VALUE_BYTES), 1, 1, 1))
    return len(segment.encode_record(0, 1, [PendingBatch(1, 0, 0, [(_key(0), stored, None)]).entry]))


@contextmanager
def empty_postgres() -> Generator[tuple[str, str]]:
    """The URL of an empty store, and whose server it is on."""
    server = provide_postgres()
    schema = f"bench_{secrets.token_hex(6)}"
    separator = "&" if "?" in server.url else "?"
    try:
        yield f"{server.url}{separator}schema={schema}", server.origin
        asyncio.run(_drop_schema(server.url, schema))
    finally:
        server.stop()


async def _drop_schema(url: str, schema: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    finally:
        await connection.close()
