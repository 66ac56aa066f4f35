"""`holdfast bench queue`: one message's life alone, as a stream and in batches, beside an empty request and the bare disk."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final
from urllib.request import Request, urlopen

import typer

from holdfast.cli.bench.measure import (
    ECHO,
    SERVE,
    BenchError,
    Run,
    Server,
    drive,
    raw_syncs_per_s,
    started,
)
from holdfast.cli.bench.queue.operations import BATCH, PAYLOAD, QUEUE, enqueue_request
from holdfast.cli.output import Output, OutputFormat, failure, print_result
from holdfast.cli.progress import progress

RAW_S: Final = 1.0
WAITING_BATCH: Final = 1000

Concurrency = Annotated[int, typer.Option("--concurrency", "-c", min=1, max=500, help="Clients at once.")]
Seconds = Annotated[
    float,
    typer.Option("--seconds", "-s", min=0.1, max=3600, help="How long to measure each of the four loads."),
]
Waiting = Annotated[
    int,
    typer.Option(
        "--waiting", min=0, max=10_000_000, help="Messages that wait in the queue before the first load."
    ),
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="A plane that is running; its CPU time is then unknown. Default: one of its own.",
    ),
]

Members = dict[str, object]


def queue(
    concurrency: Concurrency = 16,
    seconds: Seconds = 5.0,
    waiting: Waiting = 0,
    server: ServerUrl = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Enqueue, dequeue and ack of 512 bytes: one by one, as a stream, in batches of a hundred; and how fast a waiting consumer wakes."""
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
            members = measure(Path(name), concurrency, seconds, waiting, server)
    except (BenchError, OSError) as error:
        raise failure(str(error)) from None
    print_result(members, text_of(members), output)


def measure(folder: Path, concurrency: int, seconds: float, waiting: int, url: str | None) -> Members:
    """The loads one after the other, then the echo, then the bare disk, on the same machine."""
    with ExitStack() as stack:
        if url is None:
            plane = stack.enter_context(
                started(folder, (*SERVE, "--store", f"disk://{folder}/store", "--qrf-disabled"))
            )
        else:
            plane = Server(url.rstrip("/"), None)
        _fill(plane, waiting)
        runs = {
            kind: drive(plane, kind, concurrency=concurrency, seconds=seconds, keys=concurrency)
            for kind in ("queue", "queue-subscribe", "queue-batch", "queue-wake")
        }
    with started(folder, ECHO) as server:
        echo = drive(server, "echo", concurrency=concurrency, seconds=min(seconds, 3.0), keys=1)
    return members_of(runs, echo, raw_syncs_per_s(folder, RAW_S), concurrency=concurrency, waiting=waiting)


def _fill(plane: Server, waiting: int) -> None:
    with progress("filling the queue", waiting) as advance:
        for first in range(0, waiting, WAITING_BATCH):
            count = min(WAITING_BATCH, waiting - first)
            head, _, body = enqueue_request(QUEUE, [PAYLOAD] * count, "enqueueBatch").partition(b"\r\n\r\n")
            content_type = next(
                line for line in head.decode().split("\r\n") if line.startswith("Content-Type")
            )
            request = Request(f"{plane.url}/v1/queue/enqueueBatch", body, method="POST")
            request.add_header(*content_type.split(": ", 1))
            with urlopen(request, timeout=60) as answer:
                answer.read()
            advance(count, count * len(PAYLOAD))


def members_of(
    runs: dict[str, Run], echo: Run, raw_per_s: float, *, concurrency: int, waiting: int
) -> Members:
    """What was measured, per message, and its ratios to the floor under it."""
    single = _told(runs["queue"], echo, 1)
    batch = _told(runs["queue-batch"], echo, BATCH)
    wake = runs["queue-wake"].load
    return {
        "concurrency": concurrency,
        "waiting": waiting,
        "payload_bytes": len(PAYLOAD),
        "single": single,
        "subscribe": _told(runs["queue-subscribe"], echo, 1),
        "batch": batch,
        "batch_to_single": _ratio(batch["messages_per_s"], single["messages_per_s"]),
        "wake": {
            "wakes": wake.operations,
            "p50_ms": round(wake.p50_ms, 3),
            "p95_ms": round(wake.p95_ms, 3),
            "p99_ms": round(wake.p99_ms, 3),
            "commit_p50_ms": round(wake.commit_p50_ms, 3),
        },
        "echo_cpu_us_per_request": _rounded(echo.cpu_us_per_request),
        "raw_syncs_per_s": round(raw_per_s, 1),
    }


def _told(run: Run, echo: Run, messages_per_operation: int) -> dict[str, float | None]:
    messages = run.load.operations * messages_per_operation
    cpu_us = None if run.cpu_s is None else run.cpu_s / max(messages, 1) * 1e6
    return {
        "messages": messages,
        "messages_per_s": round(messages / run.load.seconds, 1),
        "p50_ms": round(run.load.p50_ms, 3),
        "p95_ms": round(run.load.p95_ms, 3),
        "p99_ms": round(run.load.p99_ms, 3),
        "cpu_us_per_message": _rounded(cpu_us),
        "message_cpu_to_echo": _ratio(cpu_us, echo.cpu_us_per_request),
        "syncs_per_message": _rounded(
            run.counters.get("holdfast_storage_syncs_total", 0.0) / max(messages, 1)
        ),
    }


def text_of(members: Members) -> str:
    """The same, for people."""
    lines = [
        f"{members['concurrency']} clients, {members['payload_bytes']} bytes, {members['waiting']} waiting before",
        f"{'':<12}{'messages/s':>12}{'p50 ms':>10}{'p95 ms':>10}{'p99 ms':>10}"
        f"{'CPU µs':>10}{'to echo':>10}{'syncs':>10}",
    ]
    columns = ("messages_per_s", "p50_ms", "p95_ms", "p99_ms", "cpu_us_per_message", "message_cpu_to_echo")
    for name in ("single", "subscribe", "batch"):
        told = members[name]
        assert isinstance(told, dict)
        values = [told[column] for column in (*columns, "syncs_per_message")]
        shown = ["unknown" if value is None else str(value) for value in values]
        lines.append(f"{name:<12}{shown[0]:>12}" + "".join(f"{value:>10}" for value in shown[1:]))
    wake = members["wake"]
    assert isinstance(wake, dict)
    lines += [
        f"batch to single: {members['batch_to_single']}",
        f"a waiting consumer has its message {wake['p50_ms']} ms after the enqueue is sent (p95 {wake['p95_ms']}, "
        f"p99 {wake['p99_ms']}); the enqueue is answered after {wake['commit_p50_ms']} ms",
        f"an empty request: {members['echo_cpu_us_per_request']} µs; the disk alone: {members['raw_syncs_per_s']} syncs/s",
    ]
    return "\n".join(lines)


def _ratio(measured: float | None, floor: float | None) -> float | None:
    return round(measured / floor, 3) if measured is not None and floor else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
