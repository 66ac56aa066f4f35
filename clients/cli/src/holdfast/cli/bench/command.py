"""`holdfast bench`: how fast the plane is here, beside what an empty request and the disk itself cost in the same run."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.cli.bench.measure import (
    ECHO,
    SERVE,
    BenchError,
    Run,
    Server,
    drive,
    fill,
    raw_syncs_per_s,
    started,
)
from holdfast.cli.bench.query import query
from holdfast.cli.bench.queue.command import queue
from holdfast.cli.output import Output, OutputFormat, failure, print_result

RAW_S: Final = 1.0

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    help="Measure a plane on this machine, beside an empty request and the bare disk.",
    epilog="Examples:  holdfast bench lock  |  holdfast bench queue --seconds 10 --output json",
)

Concurrency = Annotated[
    int, typer.Option("--concurrency", "-c", min=1, max=1000, help="Operations under way at once.")
]
Seconds = Annotated[
    float, typer.Option("--seconds", "-s", min=0.1, max=3600, help="How long to measure, after the warm-up.")
]
Keys = Annotated[
    int, typer.Option("--keys", min=1, max=10_000_000, help="How many keys the load is spread over.")
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="A plane that is running; its CPU time is then unknown. Default: one of its own.",
    ),
]

_EXAMPLE = "Examples:  holdfast bench {0} --concurrency 16  |  holdfast bench {0} --seconds 10 --output json"


@app.command(epilog=_EXAMPLE.format("lock"))
def lock(
    concurrency: Concurrency = 16,
    seconds: Seconds = 5.0,
    keys: Keys = 1000,
    server: ServerUrl = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Acquire, update of one kilobyte, release: one operation is all three."""
    _bench("lock", concurrency, seconds, keys, server, output)


@app.command(epilog=_EXAMPLE.format("read"))
def read(
    concurrency: Concurrency = 16,
    seconds: Seconds = 5.0,
    keys: Keys = 1000,
    server: ServerUrl = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Public reads of documents of one kilobyte."""
    _bench("read", concurrency, seconds, keys, server, output)


@app.command(epilog=_EXAMPLE.format("attachments"))
def attachments(
    concurrency: Concurrency = 16,
    seconds: Seconds = 5.0,
    keys: Keys = 1000,
    server: ServerUrl = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Put, public get and delete of 64 KiB, both changes under a lease and published: one operation is all seven requests."""
    _bench("attachments", concurrency, seconds, keys, server, output)


app.command(epilog=_EXAMPLE.format("queue"))(queue)
app.command(
    epilog="Examples:  holdfast bench query  |  holdfast bench query --documents 100000 --output json"
)(query)


def _bench(
    kind: str, concurrency: int, seconds: float, keys: int, server: str | None, output: OutputFormat
) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
            members = measure(kind, Path(name), concurrency, seconds, keys, server)
    except (BenchError, OSError) as error:
        raise failure(str(error)) from None
    print_result(members, text_of(members), output)


def measure(
    kind: str, folder: Path, concurrency: int, seconds: float, keys: int, url: str | None
) -> dict[str, object]:
    """The load on a plane, then on the echo, then the bare disk, one after the other on the same machine."""
    with ExitStack() as stack:
        if url is None:
            fill(folder / "store", keys)
            plane = stack.enter_context(started(folder, (*SERVE, "--store", f"disk://{folder}/store")))
        else:
            plane = Server(url.rstrip("/"), None)
            drive(plane, "lock", concurrency=concurrency, seconds=1.0, keys=keys)
        run = drive(plane, kind, concurrency=concurrency, seconds=seconds, keys=keys)
    with started(folder, ECHO) as server:
        echo = drive(server, "echo", concurrency=concurrency, seconds=min(seconds, 3.0), keys=1)
    return members_of(kind, concurrency, keys, run, echo, raw_syncs_per_s(folder, RAW_S))


def members_of(
    kind: str, concurrency: int, keys: int, run: Run, echo: Run, raw_per_s: float
) -> dict[str, object]:
    """What was measured, and its ratios to the floor under it."""
    operations_per_s = run.load.operations / run.load.seconds
    commits = run.counters.get("holdfast_storage_commits_total", 0.0)
    syncs = run.counters.get("holdfast_storage_syncs_total", 0.0)
    return {
        "kind": kind,
        "concurrency": concurrency,
        "keys": keys,
        "seconds": round(run.load.seconds, 2),
        "operations": run.load.operations,
        "operations_per_s": round(operations_per_s, 1),
        "p50_ms": round(run.load.p50_ms, 3),
        "p95_ms": round(run.load.p95_ms, 3),
        "p99_ms": round(run.load.p99_ms, 3),
        "cpu_us_per_request": _rounded(run.cpu_us_per_request),
        "cpu_us_per_operation": _rounded(run.cpu_us_per_operation),
        "syncs_per_commit": _rounded(syncs / commits if commits else None),
        "syncs_per_operation": _rounded(syncs / max(run.load.operations, 1)),
        "echo_cpu_us_per_request": _rounded(echo.cpu_us_per_request),
        "operation_cpu_to_echo": _rounded(_ratio(run.cpu_us_per_operation, echo.cpu_us_per_request)),
        "raw_syncs_per_s": round(raw_per_s, 1),
        "operations_to_raw_syncs": _rounded(_ratio(operations_per_s, raw_per_s)),
    }


def text_of(members: dict[str, object]) -> str:
    """The same, for people."""
    told = {name: "unknown" if value is None else str(value) for name, value in members.items()}
    lines = [
        (
            "operations/s",
            f"{told['operations_per_s']} ({told['kind']}, {told['concurrency']} at once, {told['keys']} keys)",
        ),
        ("p50 / p95 / p99 ms", f"{told['p50_ms']} / {told['p95_ms']} / {told['p99_ms']}"),
        (
            "server CPU µs",
            f"{told['cpu_us_per_request']} per request, {told['cpu_us_per_operation']} per operation",
        ),
        (
            "CPU to echo",
            f"{told['operation_cpu_to_echo']} (an empty request: {told['echo_cpu_us_per_request']} µs)",
        ),
        ("syncs", f"{told['syncs_per_commit']} per commit, {told['syncs_per_operation']} per operation"),
        (
            "to the raw log",
            f"{told['operations_to_raw_syncs']} (the disk alone: {told['raw_syncs_per_s']} syncs/s)",
        ),
    ]
    return "\n".join(f"{name:<20}{value}" for name, value in lines)


def _ratio(measured: float | None, floor: float | None) -> float | None:
    return measured / floor if measured is not None and floor else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
