"""`holdfast bench`: the operations it drives, and what it makes of the measurements."""

import json
from itertools import islice

import pytest

from holdfast.cli.bench.command import members_of, text_of
from holdfast.cli.bench.load import (
    ATTACHMENT,
    DOCUMENT,
    Load,
    LoadJob,
    LoadResult,
    attachment_cycle,
    key_name,
    lock_cycle,
    public_read,
    transaction,
)
from holdfast.cli.bench.measure import BenchError, Run, Server, drive


def run_of(operations: int, requests: int, cpu_s: float | None, **counters: float) -> Run:
    load = LoadResult(operations, requests, seconds=2.0, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0)
    named = {f"holdfast_storage_{name}_total": value for name, value in counters.items()}
    return Run(load, cpu_s, named)


ECHO = run_of(10_000, 10_000, cpu_s=0.5)


def test_a_lock_cycle_is_acquire_update_and_release_under_one_lease() -> None:
    cycle = lock_cycle("orders")

    acquire = next(cycle)
    update = cycle.send(b'{"lease_id":"L","txn_id":"T","fencing_token":7}')
    release = cycle.send(b"{}")
    with pytest.raises(StopIteration):
        cycle.send(b"{}")

    assert acquire.startswith(b"POST /v1/acquire HTTP/1.1\r\n")
    assert update.startswith(b"POST /v1/update?key=orders HTTP/1.1\r\n")
    assert b"X-Lease-ID: L\r\nX-Txn-ID: T\r\nX-Fencing-Token: 7\r\n" in update
    assert update.endswith(DOCUMENT)
    assert release.endswith(b'{"key":"orders","lease_id":"L","txn_id":"T"}')


def test_a_transaction_is_two_keys_joined_and_committed_by_one_release() -> None:
    operation = transaction("orders")

    requests = [next(operation)]
    requests.append(operation.send(b'{"lease_id":"A","txn_id":"T","fencing_token":7}'))
    requests.append(operation.send(b'{"lease_id":"B","txn_id":"T","fencing_token":8}'))
    requests += [operation.send(b"{}"), operation.send(b"{}")]
    with pytest.raises(StopIteration):
        operation.send(b"{}")

    first, second = (json.loads(request.partition(b"\r\n\r\n")[2]) for request in requests[:2])
    assert (first["key"], second["key"]) == ("orders-a", "orders-b")
    assert first["txn_id"] == second["txn_id"] != ""
    assert [request.split()[1] for request in requests[2:4]] == [
        b"/v1/update?key=orders-a",
        b"/v1/update?key=orders-b",
    ]
    assert requests[4].endswith(b'{"key":"orders-a","lease_id":"A","txn_id":"T"}')


def test_the_document_is_a_kilobyte() -> None:
    assert len(DOCUMENT) == 1024


def test_a_public_read_is_one_request() -> None:
    read = public_read("orders")

    assert next(read).startswith(b"POST /v1/get?key=orders&public=1 HTTP/1.1\r\n")
    with pytest.raises(StopIteration):
        read.send(b"{}")


def test_an_attachment_is_put_published_read_and_deleted() -> None:
    granted = b'{"lease_id":"L","txn_id":"T","fencing_token":7}'
    answers = [granted, b"{}", b"{}", ATTACHMENT, granted, b"{}", b"{}"]

    cycle = attachment_cycle("orders")
    requests = [next(cycle), *(cycle.send(answer) for answer in answers[:-1])]
    with pytest.raises(StopIteration):
        cycle.send(answers[-1])

    assert [request.partition(b"?")[0].partition(b" HTTP")[0].decode() for request in requests] == [
        "POST /v1/acquire",
        "POST /v1/attachments",
        "POST /v1/release",
        "GET /v1/attachment",
        "POST /v1/acquire",
        "DELETE /v1/attachment",
        "POST /v1/release",
    ]
    assert requests[1].endswith(ATTACHMENT)
    assert b"X-Lease-ID" not in requests[3]


def test_an_operation_is_compared_with_one_empty_request_and_the_bare_disk() -> None:
    run = run_of(1_000, 3_000, cpu_s=0.6, commits=3_000, syncs=600)

    members = members_of("lock", 16, 10, run, ECHO, raw_per_s=1_000.0)

    assert members["operations_per_s"] == 500.0
    assert members["cpu_us_per_request"] == 200.0
    assert members["operation_cpu_to_echo"] == 12.0
    assert members["syncs_per_commit"] == 0.2
    assert members["syncs_per_operation"] == 0.6
    assert members["operations_to_raw_syncs"] == 0.5


def test_what_can_not_be_known_is_told_as_unknown() -> None:
    run = run_of(1_000, 1_000, cpu_s=None)

    members = members_of("read", 1, 10, run, ECHO, raw_per_s=1_000.0)

    assert members["operation_cpu_to_echo"] is None
    assert "unknown per request" in text_of(members)


def test_only_plain_addresses_are_driven() -> None:
    with pytest.raises(BenchError, match="only plain http"):
        drive(Server("https://127.0.0.1:1", None), "read", concurrency=1, seconds=0.1, keys=1)


async def test_the_load_is_spread_over_so_many_keys() -> None:
    load = Load(LoadJob("127.0.0.1", 1, "lock", concurrency=3, seconds=1.0, keys=10))

    shares = [set(islice(load._keys(number), 100)) for number in range(3)]

    assert sorted(key for share in shares for key in share) == sorted(
        key_name(number) for number in range(10)
    )
