"""Turns measurements into tables, and says for each target whether it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.frame_bench import CPU_TO_FRAME_MAX, NAMES, SYNCS_PER_LOCK_MAX
from tests.bench.frame_bench import Row as FrameRow
from tests.bench.store_bench import DISK, FULL_SPEED, POSTGRES, STEADY_PER_S, WRITERS, StoreResult

RATIO_TO_RAW_MIN = 0.5
SPEED_UP_MIN = 5.0
STALL_P99_MS_MAX = 2.0

HttpResult = Mapping[
    str, Any
]  # As `run` of http_bench, gateway_bench and transaction_bench returns it: rows, ratios, their bounds.


@dataclass(frozen=True, slots=True)
class Target:
    """A promise and what was measured."""

    name: str
    measured: float
    bound: float
    is_minimum: bool

    @property
    def holds(self) -> bool:
        return self.measured >= self.bound if self.is_minimum else self.measured <= self.bound

    def cells(self) -> tuple[str, ...]:
        bound = f"{'at least' if self.is_minimum else 'at most'} {self.bound:g}"
        return self.name, bound, f"{self.measured:.2f}", "yes" if self.holds else "**no**"


def store_targets(result: StoreResult) -> list[Target]:
    many = WRITERS[-1]
    targets: list[Target] = []
    for backend in (DISK, POSTGRES):
        alone, together = result.row(backend, 1), result.row(backend, many)
        targets += [
            Target(
                f"{backend}: commits/s of 1 writer to the raw log", alone.ratio_to_raw, RATIO_TO_RAW_MIN, True
            ),
            Target(
                f"{backend}: commits/s of {many} writers to 1 writer",
                result.speed_up(together),
                SPEED_UP_MIN,
                True,
            ),
        ]
    for pace in (f"{STEADY_PER_S} commits/s", FULL_SPEED):
        stall = result.stalls[f"{DISK}, {many} writers, {pace}"]
        name = f"{DISK}: p99 of the event loop's stall in ms, {many} writers, {pace}"
        targets.append(Target(name, stall.p99_ms, STALL_P99_MS_MAX, False))
    return targets


def http_targets(result: HttpResult) -> list[Target]:
    return [
        Target(f"CPU of the express lane to {other}", float(result[key]), float(result[f"{key}_max"]), False)
        for key, other in (("lane_to_asgi", "a bare ASGI echo"), ("lane_to_fastapi", "plain FastAPI"))
    ]


def gateway_targets(result: HttpResult) -> list[Target]:
    name = "CPU that the gateway's hop adds to a call, to the call itself"
    return [Target(name, float(result["hop_to_call"]), float(result["hop_to_call_max"]), False)]


def frame_targets(rows: Sequence[FrameRow]) -> list[Target]:
    """Of one connection for each operation, as many clients have it; those that are kept are in the table."""
    new = [row for row in rows if not row.is_keep_alive]
    targets = [
        Target(
            f"CPU of {NAMES[row.kind]} to the frame's lock cycle",
            row.cpu_to_frame,
            CPU_TO_FRAME_MAX[row.kind],
            False,
        )
        for row in new
    ]
    syncs = [row.syncs for row in new if row.kind == "lock"]
    return [*targets, *[Target("syncs per lock cycle", each, SYNCS_PER_LOCK_MAX, False) for each in syncs]]


def frame_table(rows: Sequence[FrameRow]) -> str:
    cells = [
        (
            NAMES[row.kind],
            "kept alive" if row.is_keep_alive else "one per operation",
            f"{row.cpu_us:.0f}",
            f"{row.cpu_to_frame:.2f}",
            f"{row.rate:.0f}",
            f"{row.rate_to_frame:.2f}",
            f"{row.syncs:.2f}",
            f"{row.group:.1f}",
        )
        for row in rows
    ]
    head = (
        "operation",
        "connections",
        "CPU µs",
        "to the frame",
        "per second",
        "to the frame",
        "syncs",
        "commits/sync",
    )
    return table(head, cells)


def store_tables(result: StoreResult) -> str:
    rows = [
        (
            row.backend,
            str(row.writers),
            f"{row.commits_per_s:.0f}",
            f"{row.raw_syncs_per_s:.0f}",
            f"{row.ratio_to_raw:.2f}",
            f"{result.speed_up(row):.1f}",
            "–" if row.syncs_per_commit is None else f"{row.syncs_per_commit:.3f}",
            f"{row.cpu_us_per_commit:.0f}",
        )
        for row in result.rows
    ]
    head = (
        "backend",
        "writers",
        "commits/s",
        "raw syncs/s",
        "to raw",
        "to 1 writer",
        "syncs/commit",
        "CPU µs/commit",
    )
    stalls = [
        (name, f"{stall.p50_ms:.2f}", f"{stall.p99_ms:.2f}", f"{stall.max_ms:.2f}")
        for name, stall in result.stalls.items()
    ]
    return f"{table(head, rows)}\n\n{table(('the event loop has', 'p50 ms', 'p99 ms', 'max ms'), stalls)}"


def http_table(result: HttpResult) -> str:
    rows = [
        (str(row["name"]), f"{row['cpu_us']:.1f}", f"{row['requests_per_s']:.0f}") for row in result["rows"]
    ]
    return table(("served by", "CPU µs/request", "requests/s"), rows)


def gateway_table(result: HttpResult) -> str:
    rows = [
        (
            str(row["name"]),
            f"{row['direct_us']:.1f}",
            f"{row['service_us']:.1f}",
            f"{row['gateway_us']:.1f}",
            f"{row['to_call']:.2f}",
        )
        for row in result["rows"]
    ]
    return table(("call", "directly µs", "service µs", "gateway µs", "hop to call"), rows)


def transaction_table(result: HttpResult) -> str:
    rows = [
        (
            str(row["name"]),
            f"{row['transactions_per_s']:.0f}",
            f"{row['commit_p50_ms']:.1f}",
            f"{row['commit_p99_ms']:.1f}",
            f"{row['cpu_us']:.0f}",
        )
        for row in result["rows"]
    ]
    head = ("plane", "transactions/s", "commit p50 ms", "commit p99 ms", "CPU µs/transaction")
    return table(head, rows)


def targets_table(targets: Sequence[Target]) -> str:
    return table(("target", "bound", "measured", "holds"), [target.cells() for target in targets])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns lined up, so that it reads well on a terminal too."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, *rows)
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


PAGE = """# Benchmarks

Written by `make bench` on {date}, on {machine}.
Absolute numbers belong to that machine at that hour; the ratios are what is promised, and both sides of each were
measured in the same run.

## Targets

{targets}

## Store

Writers commit {value_bytes}-byte values one after the other, each on its own, on keys spread over the whole range. The raw
log is a preallocated file that takes a record of the same size and syncs it, with nothing around it, measured before
and after each row. CPU is of the client process, all its threads. PostgreSQL: {postgres_origin}.

{store}

A stall is how late a timer of one millisecond fires; with nothing to do it is the machine's own. At a steady {steady}
commits/s the loop has time to spare, so what is added comes from syncing. At full speed {writers} writers keep the loop
busy themselves: their own work for one group of commits is part of that figure.

## HTTP

Server CPU for one small POST, same body and answer: by the express lane, by a bare ASGI echo under uvicorn (`asgi`), and
by the same endpoint as plain FastAPI (`fastapi`).

{http}

## Gateway

CPU for one call to a service on disk, sent to it directly, and sent through a gateway in another process (both processes).
The hop is what the second way costs more; a `get` reads a document, a `keepalive` is a durable write.

{gateway}

## Transactions

{clients} clients commit transactions over two keys, each on its own keys: two acquires, two updates, and the release that
commits both. Latency is that of the release; CPU is of all processes of the plane, without PostgreSQL's. The commit is
one storage transaction of the process that got the release.

{transaction}

## Beside the frame

The frame is a server with nothing in it: it parses requests, writes them to a file that is synced once per turn of the loop, and
answers with canned bodies of the same sizes and ids of their own. A plane on disk and its frame take turns under the same load;
ratios are to the frame's lock cycle (acquire, update of 1 KB, release) in the same round, and medians of all rounds. What is far from
its target needs decision 13's rules to run without a coroutine each, and decoded records in memory.

{frame}
"""
