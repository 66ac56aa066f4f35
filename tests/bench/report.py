"""Turns measurements into tables, and says for each target whether it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench import (
    compaction_bench,
    crowd_bench,
    encryption_bench,
    growth_bench,
    keys_bench,
    large_bench,
    locks_bench,
)
from tests.bench.frame_bench import COMMITS_PER_GROUP_MIN, CPU_TO_FRAME_MAX, NAMES, SYNCS_PER_LOCK_MAX
from tests.bench.frame_bench import Row as FrameRow
from tests.bench.preparation import CLIENTS
from tests.bench.store_bench import DISK, FULL_SPEED, POSTGRES, STEADY_PER_S, WRITERS, StoreResult

KEYS_NAMES = {
    "update": "an update of a document",
    "put": "a put of a key",
    "read": "a public read",
    "range": "a range of one key",
}
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


@dataclass(frozen=True, slots=True)
class Section:
    """What one part of the benchmarks adds to the page; `facts` are words within its text."""

    tables: str
    targets: Sequence[Target] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


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
    """Of one connection for each operation, as many clients have it; reads have kept ones."""
    planes = [row for row in rows if not row.is_frame and row.is_keep_alive == (row.kind == "read")]
    targets = [
        Target(
            f"CPU of {NAMES[row.kind]} to the frame's lock cycle",
            row.cpu_to_frame,
            CPU_TO_FRAME_MAX[row.kind],
            False,
        )
        for row in planes
        if row.kind in CPU_TO_FRAME_MAX
    ]
    for row in planes:
        if row.kind == "lock":
            group = f"commits per sync, lock cycles of {CLIENTS} clients"
            targets += [
                Target(group, row.group, COMMITS_PER_GROUP_MIN, True),
                Target("syncs per lock cycle", row.syncs, SYNCS_PER_LOCK_MAX, False),
            ]
    return targets


def encryption_targets(rows: Sequence[encryption_bench.Row]) -> list[Target]:
    return [
        Target(
            f"CPU of a lock cycle on an encrypted store to a plain one, {_connections(row.is_keep_alive)}",
            row.encrypted_to_plain,
            encryption_bench.ENCRYPTED_TO_PLAIN_MAX,
            False,
        )
        for row in rows
    ]


def growth_targets(rows: Sequence[growth_bench.Row]) -> list[Target]:
    fewest, *_, most = rows
    named = (("a lock cycle", most.lock_to_fewest), ("a public read", most.read_to_fewest))
    return [
        Target(
            f"CPU of {name} among {most.keys} keys to {fewest.keys}",
            ratio,
            growth_bench.TO_FEWEST_MAX,
            False,
        )
        for name, ratio in named
    ]


def crowd_targets(rows: Sequence[crowd_bench.Row]) -> list[Target]:
    return [
        Target(
            f"CPU of {row.operation} among {row.many} {row.name} to {row.few}",
            row.to_few,
            growth_bench.TO_FEWEST_MAX,
            False,
        )
        for row in rows
    ]


def large_targets(rows: Sequence[large_bench.Row]) -> list[Target]:
    return [
        Target(f"MB/s of the {way} of {row.name} to cat and SHA-256", ratio, large_bench.TO_CAT_MIN, True)
        for row in rows
        for way, ratio in (("upload", row.upload_to_cat), ("download", row.download_to_cat))
    ]


def locks_targets(result: locks_bench.LocksResult) -> list[Target]:
    targets: list[Target] = []
    for row in result.rows:
        kept = f"lock and release over TCP to the skeleton, {row.clients} connections"
        targets += [
            Target(f"rate of {kept}", row.rate_to_skeleton, locks_bench.RATE_TO_SKELETON_MIN, True),
            Target(f"CPU of {kept}", row.cpu_to_skeleton, locks_bench.CPU_TO_SKELETON_MAX, False),
        ]
    idle = f"KB of RSS for each of {result.idle_connections} idle TCP connections"
    return [*targets, Target(idle, result.idle_kb, locks_bench.IDLE_KB_MAX, False)]


def _connections(is_keep_alive: bool) -> str:
    return "kept alive" if is_keep_alive else "one per operation"


def frame_table(rows: Sequence[FrameRow]) -> str:
    cells = [
        (
            f"the frame: {NAMES[row.kind]}" if row.is_frame else NAMES[row.kind],
            _connections(row.is_keep_alive),
            f"{row.cpu_us:.0f}",
            f"{row.cpu_to_frame:.2f}",
            f"{row.rate:.0f}",
            f"{row.rate_to_frame:.2f}",
            f"{row.syncs:.2f}",
            f"{row.group:.1f}" if row.group else "–",
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


def encryption_table(rows: Sequence[encryption_bench.Row]) -> str:
    cells = [
        (
            _connections(row.is_keep_alive),
            f"{row.plain_us:.0f}",
            f"{row.encrypted_us:.0f}",
            f"{row.encrypted_to_plain:.2f}",
            f"{row.rate_to_plain:.2f}",
        )
        for row in rows
    ]
    return table(("connections", "plain µs", "encrypted µs", "CPU to plain", "rate to plain"), cells)


def growth_table(rows: Sequence[growth_bench.Row]) -> str:
    cells = [
        (
            str(row.keys),
            f"{row.lock_us:.0f}",
            f"{row.lock_to_fewest:.2f}",
            f"{row.read_us:.0f}",
            f"{row.read_to_fewest:.2f}",
            f"{row.rss_start_mb:.0f}",
            f"{row.rss_mb:.0f}",
        )
        for row in rows
    ]
    head = (
        "keys",
        "lock cycle µs",
        "to the fewest",
        "read µs",
        "to the fewest",
        "RSS at the start, MB",
        "after the load, MB",
    )
    return table(head, cells)


def crowd_table(rows: Sequence[crowd_bench.Row]) -> str:
    cells = [
        (
            f"{row.many} {row.name}",
            row.operation,
            f"{row.many_us:.0f}",
            str(row.few),
            f"{row.few_us:.0f}",
            f"{row.to_few:.2f}",
            f"{row.rss_many_mb:.0f}",
            f"{row.rss_few_mb:.0f}",
        )
        for row in rows
    ]
    head = ("there are", "operation", "µs", "among so few", "µs", "ratio", "RSS, MB", "among few, MB")
    return table(head, cells)


def large_table(rows: Sequence[large_bench.Row]) -> str:
    cells = [
        (
            row.name,
            f"{row.upload_mb_per_s:.0f}",
            f"{row.download_mb_per_s:.0f}",
            f"{row.cat_mb_per_s:.0f}",
            f"{row.disk_mb_per_s:.0f}",
            f"{row.upload_to_cat:.2f}",
            f"{row.download_to_cat:.2f}",
            f"{row.rss_mb:.0f}",
            f"{row.rss_peak_mb:.0f}",
        )
        for row in rows
    ]
    head = (
        "of",
        "upload MB/s",
        "download MB/s",
        "cat MB/s",
        "synced copy MB/s",
        "upload to cat",
        "download to cat",
        "RSS before, MB",
        "peak, MB",
    )
    return table(head, cells)


def locks_table(result: locks_bench.LocksResult) -> str:
    cells = [
        (
            str(row.clients),
            f"{row.rate:.0f}",
            f"{row.skeleton_rate:.0f}",
            f"{row.rate_to_skeleton:.2f}",
            f"{row.cpu_us:.1f}",
            f"{row.skeleton_cpu_us:.1f}",
            f"{row.cpu_to_skeleton:.2f}",
            f"{row.p99_ms:.2f}",
        )
        for row in result.rows
    ]
    head = (
        "connections",
        "per second",
        "the skeleton",
        "ratio",
        "CPU µs",
        "the skeleton",
        "ratio",
        "p99 ms",
    )
    return table(head, cells)


def keys_targets(result: keys_bench.Result) -> list[Target]:
    return [
        Target(
            f"CPU of {KEYS_NAMES[row.kind]} to {KEYS_NAMES[keys_bench.YARDSTICKS[row.kind]]}, {row.connections} connections",
            row.cpu_to_yardstick,
            keys_bench.TO_YARDSTICK_MAX[row.kind],
            False,
        )
        for row in result.rows
        if row.kind in keys_bench.YARDSTICKS
    ]


def keys_table(result: keys_bench.Result) -> str:
    cells = [
        (
            KEYS_NAMES[row.kind],
            str(row.connections),
            f"{row.rate:.0f}",
            f"{row.cpu_us:.1f}",
            f"{row.cpu_to_yardstick:.2f}" if row.kind in keys_bench.YARDSTICKS else "",
        )
        for row in result.rows
    ]
    fan_outs = [
        (str(one.watchers), f"{one.events_per_s:.0f}", f"{one.cpu_us:.1f}") for one in result.fan_outs
    ]
    operations = table(("", "connections", "per second", "CPU µs", "to its yardstick"), cells)
    return f"{operations}\n\n{table(('watchers', 'events per second', 'CPU µs per event'), fan_outs)}"


def compaction_table(result: compaction_bench.Compaction) -> str:
    cells = [
        (
            row.name,
            str(row.size_bytes),
            f"{row.compact_ms:.1f}",
            f"{row.parse_ms:.1f}",
            f"{row.compact_to_parse:.2f}",
        )
        for row in result.rows
    ]
    return table(("the text is", "bytes", "compaction ms", f"{result.parser} ms", "ratio"), cells)


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
