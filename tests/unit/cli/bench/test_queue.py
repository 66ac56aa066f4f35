"""`holdfast bench queue`: the requests it sends, and what it makes of the measurements."""

import json

import pytest

from holdfast.cli.bench.load import LoadResult
from holdfast.cli.bench.measure import Run
from holdfast.cli.bench.queue.command import members_of, text_of
from holdfast.cli.bench.queue.operations import BATCH, batch_life, message_life

META = b'{"message":{"queue":"%b","message_id":"m%d","lease_id":"L","txn_id":"T","fencing_token":1,"meta_etag":"e"}}\n'


def run_of(operations: int, cpu_s: float | None, **counters: float) -> Run:
    load = LoadResult(
        operations, operations * 3, seconds=2.0, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, commit_p50_ms=0.5
    )
    return Run(load, cpu_s, {f"holdfast_storage_{name}_total": value for name, value in counters.items()})


def test_the_life_of_a_message_is_enqueue_dequeue_and_ack() -> None:
    life = message_life("any")

    enqueue = next(life)
    dequeue = life.send(b"{}")
    ack = life.send(b"--b\r\n\r\n" + META % (b"bench", 1) + b"\r\n--b\r\n\r\nx\r\n--b--\r\n")
    with pytest.raises(StopIteration):
        life.send(b"{}")

    assert enqueue.startswith(b"POST /v1/queue/enqueue HTTP/1.1\r\n")
    assert enqueue.count(b"x" * 512) == 1
    assert dequeue.startswith(b"POST /v1/queue/dequeue HTTP/1.1\r\n")
    assert json.loads(ack.partition(b"\r\n\r\n")[2])["message_id"] == "m1"


def test_a_batch_has_to_come_back_whole() -> None:
    life = batch_life("own")
    next(life)
    life.send(b"{}")

    with pytest.raises(AssertionError, match="whole"):
        life.send(META % (b"own", 1))


def test_figures_are_told_per_message() -> None:
    runs = {
        "queue": run_of(1_000, cpu_s=0.3, syncs=400),
        "queue-subscribe": run_of(2_000, cpu_s=0.4, syncs=400),
        "queue-batch": run_of(100, cpu_s=0.5, syncs=100),
        "queue-wake": run_of(50, cpu_s=0.1),
    }

    members = members_of(runs, run_of(10_000, cpu_s=0.9), 1_000.0, concurrency=16, waiting=0)

    single, batch = members["single"], members["batch"]
    assert isinstance(single, dict)
    assert isinstance(batch, dict)
    assert (single["messages_per_s"], single["cpu_us_per_message"], single["syncs_per_message"]) == (
        500.0,
        300.0,
        0.4,
    )
    assert single["message_cpu_to_echo"] == 10.0
    assert batch["messages"] == 100 * BATCH
    assert members["batch_to_single"] == 10.0
    assert "0.5 ms" in text_of(members)


def test_what_can_not_be_known_is_told_as_unknown() -> None:
    kinds = ["queue", "queue-subscribe", "queue-batch", "queue-wake"]
    runs = dict.fromkeys(kinds, run_of(10, cpu_s=None))

    members = members_of(runs, run_of(10, cpu_s=None), 1_000.0, concurrency=1, waiting=0)

    assert text_of(members).count("unknown") == 6
