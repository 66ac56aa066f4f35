"""`/v1/keepalive/batch`: each renewal is answered as `/v1/keepalive` would, and costs the others nothing."""

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from tests.wire.lockd.conftest import Lease, Wire

OTHER_XID = "c5v9d0sl70b3m3q8ndg0"
PATH = "/v1/keepalive/batch"


async def end_of(wire: Wire, key: str) -> int:
    end: int = (await wire.get("/v1/describe", key=key)).json()["expires_at_unix"]
    return end


def renewal(lease: Lease, **changes: object) -> dict[str, object]:
    proof = {
        "namespace": "default",
        "key": lease.key,
        "lease_id": lease.lease_id,
        "txn_id": lease.txn_id,
        "fencing_token": lease.token,
        "ttl_seconds": 60,
    }
    return {name: value for name, value in {**proof, **changes}.items() if value is not None}


async def test_every_renewal_of_a_batch_is_told_its_new_end_and_its_token(wire: Wire) -> None:
    leases = [await wire.acquire(f"batch/{number}", ttl_seconds=5) for number in range(5)]

    answer = await wire.post(PATH, {"renewals": [renewal(lease) for lease in leases]})

    told = answer.json()
    assert answer.status_code == 200, answer.text
    assert told["renewed"] == 5
    assert [result["fencing_token"] for result in told["results"]] == [lease.token for lease in leases]
    for lease, result in zip(leases, told["results"], strict=True):
        assert set(result) == {"expires_at_unix", "fencing_token"}
        assert await end_of(wire, lease.key) == result["expires_at_unix"]


@pytest.mark.parametrize(
    "changes",
    [
        {"lease_id": OTHER_XID},
        {"fencing_token": 99},
        {"txn_id": OTHER_XID},
        {"txn_id": None},
        {"lease_id": None},
        {"key": None},
        {"key": "a//b"},
        {"namespace": ".txns"},
        {"key": "unheard-of"},
        {"key": "q/orders/state/m1"},
    ],
)
async def test_a_refused_renewal_is_refused_as_the_single_call_refuses_it(
    wire: Wire, changes: dict[str, object]
) -> None:
    bad, good = await wire.acquire("bad"), await wire.acquire("good")
    asked = renewal(bad, **changes)

    answer = await wire.post(PATH, {"renewals": [asked, renewal(good)]})
    alone = await wire.post("/v1/keepalive", asked, {"X-Fencing-Token": str(asked["fencing_token"])})

    refused, renewed = answer.json()["results"]
    assert {"status": alone.status_code, **alone.json()} == refused
    assert renewed["fencing_token"] == good.token
    assert answer.json()["renewed"] == 1


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ({"fencing_token": None}, "missing_fencing_token"),
        ({"fencing_token": "1"}, "invalid_body"),
        ({"ttl_seconds": "soon"}, "invalid_body"),
        ({"unknown": 1}, "invalid_body"),
    ],
)
async def test_a_renewal_that_is_none_fails_alone(wire: Wire, broken: dict[str, object], code: str) -> None:
    bad, good = await wire.acquire("bad"), await wire.acquire("good")

    answer = await wire.post(PATH, {"renewals": [renewal(bad, **broken), renewal(good)]})

    refused, renewed = answer.json()["results"]
    assert (refused["status"], refused["error"]) == (400, code)
    assert renewed["fencing_token"] == good.token


@pytest.mark.parametrize("body", [{}, {"renewals": None}, {"renewals": {}}, {"renewals": [], "more": 1}, []])
async def test_a_body_that_is_no_batch_is_refused_whole(wire: Wire, body: Any) -> None:
    answer = await wire.post(PATH, body)

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_body")


async def test_a_batch_above_the_limit_is_refused_and_told_the_limit(wire: Wire) -> None:
    lease = await wire.acquire("once")

    answer = await wire.post(PATH, {"renewals": [renewal(lease)] * 1001})
    below = await wire.post(PATH, {"renewals": [renewal(lease)] * 1000})

    assert (answer.status_code, answer.json()["error"]) == (400, "too_many_renewals")
    assert "1000" in answer.json()["detail"]
    assert below.json()["renewed"] == 1000


async def test_an_empty_batch_renews_nothing(wire: Wire) -> None:
    answer = await wire.post(PATH, {"renewals": []})

    assert answer.json() == {"renewed": 0, "results": []}


async def test_a_renewed_key_keeps_its_whole_transaction(wire: Wire) -> None:
    first = await wire.acquire("first", ttl_seconds=30)
    second = await wire.acquire("second", ttl_seconds=30, txn_id=first.txn_id)
    alone = await wire.acquire("alone", ttl_seconds=30)

    answer = await wire.post(PATH, {"renewals": [renewal(alone), renewal(second, ttl_seconds=600)]})

    assert answer.json()["renewed"] == 2
    kept = [await end_of(wire, key) for key in ("first", "second", "alone")]
    assert kept[0] == kept[1] == answer.json()["results"][1]["expires_at_unix"]
    assert kept[2] < kept[0] - 400


async def test_all_keys_of_a_transaction_may_be_renewed_by_one_batch(wire: Wire) -> None:
    first = await wire.acquire("first", ttl_seconds=30)
    others = [await wire.acquire(f"other/{n}", ttl_seconds=30, txn_id=first.txn_id) for n in range(20)]
    wrong = renewal(others[3], fencing_token=99)

    answer = await wire.post(PATH, {"renewals": [renewal(first), wrong, *map(renewal, others)]})

    assert answer.json()["renewed"] == 21
    assert answer.json()["results"][1]["error"] == "fencing_mismatch"


async def test_batches_of_the_same_leases_at_once_all_succeed(wire: Wire) -> None:
    leases = [await wire.acquire(f"shared/{number}") for number in range(150)]
    body = {"renewals": [renewal(lease) for lease in leases]}

    answers = await asyncio.gather(*(wire.post(PATH, body) for _ in range(8)))

    assert [answer.json()["renewed"] for answer in answers] == [150] * 8


async def test_renewals_are_counted_one_by_one(wire: Wire) -> None:
    leases = [await wire.acquire(f"counted/{number}") for number in range(3)]

    await wire.post(PATH, {"renewals": [*map(renewal, leases), renewal(leases[0], fencing_token=9)]})

    counted = re.findall(r'keepalive_total\{namespace="default",result="(\w+)"\} (\d+)', await wire.metrics())
    totals = Counter[str]()
    for result, count in counted:  # Each replica has its own.
        totals[result] += int(count)
    assert totals == {"ok": 3, "fencing_mismatch": 1}
