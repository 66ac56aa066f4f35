"""Decisions of transactions on the wire: every measured answer, and what each does to keys and messages."""

from typing import Any

import httpx
import pytest

from holdfast.common.ids import new_xid
from tests.wire.lockd.conftest import Lease, Wire
from tests.wire.lockd.queue_wire import dequeue, enqueue, take

ELSEWHERE = "0123456789abcdef"


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def state(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    told: str = answer.json()["state"]
    return told


def participant(key: str, **more: object) -> dict[str, object]:
    return {"namespace": "default", "key": key, **more}


async def decide(wire: Wire, txn_id: str, wanted: str, *keys: str, **more: object) -> httpx.Response:
    participants = [participant(key) for key in keys]
    body = {"txn_id": txn_id, "state": wanted, "participants": participants, **more}
    return await wire.post("/v1/txn/decide", body)


async def call(wire: Wire, verb: str, txn_id: str, **more: object) -> httpx.Response:
    return await wire.post(f"/v1/txn/{verb}", {"txn_id": txn_id, **more})


async def staged(wire: Wire, key: str, txn_id: str, text: bytes = b'{"n":1}') -> Lease:
    lease = await wire.acquire(key, txn_id=txn_id)
    answer = await wire.update(lease, text)
    assert answer.status_code == 200, answer.text
    return lease


async def is_free(wire: Wire, key: str) -> bool:
    answer = await wire.post("/v1/acquire", {"key": key, "owner": "other", "block_seconds": -1})
    return answer.status_code == 200


# -- what is refused


@pytest.mark.parametrize(
    ("verb", "body", "refusal"),
    [
        ("decide", {}, (400, "missing_txn_id")),
        ("decide", {"txn_id": "nope", "state": "foo"}, (400, "invalid_txn_id")),
        ("decide", {"txn_id": "c0000000000000000000", "state": "foo"}, (400, "invalid_state")),
        ("decide", {"txn_id": "c0000000000000000000"}, (400, "invalid_state")),
        ("decide", b"{", (400, "invalid_body")),
        ("decide", {"txn_id": 1}, (400, "invalid_body")),
        ("commit", {}, (400, "missing_txn_id")),
        ("rollback", {"txn_id": "nope"}, (400, "invalid_txn_id")),
        ("replay", {}, (400, "missing_txn_id")),
        ("replay", {"txn_id": "NOPE"}, (400, "invalid_txn_id")),
        ("replay", {"txn_id": "c0000000000000000000"}, (404, "txn_not_found")),
        ("commit", {"txn_id": "c0000000000000000000"}, (404, "txn_not_found")),
        ("rollback", {"txn_id": "c0000000000000000000"}, (404, "txn_not_found")),
    ],
)
async def test_wrong_requests_are_refused(wire: Wire, verb: str, body: Any, refusal: tuple[int, str]) -> None:
    assert code(await wire.post(f"/v1/txn/{verb}", body)) == refusal


@pytest.mark.parametrize(
    ("named", "refusal"),
    [
        ({"namespace": ".txns", "key": "a"}, "invalid_namespace"),
        ({"key": "a"}, "invalid_namespace"),
        ({"namespace": "default"}, "invalid_key"),
        ({"namespace": "default", "key": "../a"}, "invalid_key"),
        ({"namespace": "default", "key": "a", "backend_hash": " "}, "invalid_backend_hash"),
    ],
)
async def test_wrong_participants_are_refused(wire: Wire, named: dict[str, str], refusal: str) -> None:
    answer = await decide(wire, new_xid(), "pending", participants=[named])

    assert code(answer) == (400, refusal)


async def test_more_participants_than_a_transaction_may_have_are_refused(wire: Wire) -> None:
    answer = await decide(wire, new_xid(), "commit", *(f"k{number}" for number in range(1001)))

    assert code(answer) == (413, "too_many_participants")


async def test_any_method_is_answered_and_unknown_fields_are_ignored(wire: Wire) -> None:
    without_input = await wire.get("/v1/txn/decide")
    with_more = await call(wire, "replay", "nope", unknown=1)

    assert code(without_input) == (400, "missing_txn_id")
    assert code(with_more) == (400, "invalid_txn_id")


# -- what is recorded


async def test_a_decision_may_come_as_query_and_makes_a_record(wire: Wire) -> None:
    txn_id = new_xid()

    decided = await wire.post("/v1/txn/decide", None, txn_id=txn_id, state="rollback")

    assert decided.json() == {"txn_id": txn_id, "state": "rollback"}
    assert state(await call(wire, "replay", txn_id)) == "rollback"
    assert state(await call(wire, "commit", txn_id)) == "rollback"


async def test_a_commit_without_participants_does_not_decide_a_pending_transaction(wire: Wire) -> None:
    txn_id = new_xid()
    assert state(await decide(wire, txn_id, "pending", "a", expires_at_unix=4_000_000_000)) == "pending"

    answer = await call(wire, "commit", txn_id)

    assert code(answer) == (409, "txn_pending")
    assert answer.json()["detail"] == "transaction decision not recorded"
    assert state(await call(wire, "replay", txn_id)) == "pending"


async def test_a_commit_with_participants_applies_all_that_are_recorded(wire: Wire) -> None:
    txn_id = new_xid()
    await staged(wire, "a", txn_id)
    await staged(wire, "b", txn_id)
    await decide(wire, txn_id, "pending", "a", "b")

    answer = await call(wire, "commit", txn_id, participants=[participant("a")])

    assert state(answer) == "commit"
    assert (await wire.read("a")).json() == {"n": 1}
    assert (await wire.read("b")).json() == {"n": 1}
    assert await is_free(wire, "b")


async def test_the_first_decision_stands(wire: Wire) -> None:
    txn_id = new_xid()
    await staged(wire, "a", txn_id)
    assert state(await decide(wire, txn_id, "commit")) == "commit"

    assert state(await decide(wire, txn_id, "rollback", "a")) == "commit"
    assert state(await decide(wire, txn_id, "pending", "a")) == "commit"
    assert state(await call(wire, "rollback", txn_id, participants=[participant("a")])) == "commit"
    assert (await wire.read("a")).json() == {"n": 1}


async def test_a_decision_for_a_key_that_was_never_leased_counts_as_applied(wire: Wire) -> None:
    txn_id = new_xid()

    answer = await call(wire, "commit", txn_id, participants=[participant("never")])

    assert state(answer) == "commit"
    assert state(await call(wire, "replay", txn_id)) == "commit"


async def test_a_decision_copy_for_caller_island_is_refused(wire: Wire) -> None:
    txn_id = new_xid()

    for verb in ("commit", "decide"):
        answer = await call(wire, verb, txn_id, state="commit", target_backend_hash=ELSEWHERE)
        assert code(answer) == (409, "txn_backend_mismatch")

    assert code(await call(wire, "replay", txn_id)) == (404, "txn_not_found")


async def test_a_participant_on_an_island_nobody_knows_leaves_the_decision_recorded(wire: Wire) -> None:
    txn_id = new_xid()
    await staged(wire, "a", txn_id)
    participants = [participant("a"), participant("far", backend_hash=ELSEWHERE)]

    first = await decide(wire, txn_id, "commit", participants=participants)
    again = await decide(wire, txn_id, "rollback")

    assert code(first) == (502, "txn_fanout_failed")
    assert ELSEWHERE in first.json()["detail"]
    assert code(again) == (502, "txn_fanout_failed")
    assert state(await call(wire, "replay", txn_id)) == "commit"
    assert (await wire.read("a")).json() == {"n": 1}


async def test_terms_fence_what_is_recorded(wire: Wire) -> None:
    txn_id = new_xid()
    far = [participant("far", backend_hash=ELSEWHERE)]
    await decide(wire, txn_id, "commit", participants=far, tc_term=5)

    assert code(await decide(wire, txn_id, "commit")) == (400, "tc_term_required")
    assert code(await decide(wire, txn_id, "commit", tc_term=4)) == (409, "tc_term_stale")
    assert code(await decide(wire, txn_id, "rollback", tc_term=5)) == (409, "txn_conflict")
    assert code(await decide(wire, txn_id, "rollback", tc_term=6)) == (409, "txn_conflict")


async def test_terms_fence_what_is_over(wire: Wire) -> None:
    txn_id = new_xid()
    assert state(await decide(wire, txn_id, "commit", "a", tc_term=5)) == "commit"

    assert code(await decide(wire, txn_id, "commit")) == (400, "tc_term_required")
    assert code(await decide(wire, txn_id, "commit", tc_term=4)) == (409, "tc_term_stale")
    assert state(await decide(wire, txn_id, "commit", tc_term=5)) == "commit"
    assert state(await decide(wire, txn_id, "commit", tc_term=6)) == "commit"
    assert code(await decide(wire, txn_id, "rollback", tc_term=6)) == (409, "txn_conflict")


# -- what it does


async def test_a_rollback_drops_what_is_staged_and_frees_the_keys(wire: Wire) -> None:
    txn_id = new_xid()
    lease = await staged(wire, "a", txn_id)

    assert state(await decide(wire, txn_id, "rollback", "a")) == "rollback"

    assert (await wire.read("a")).status_code == 204
    assert code(await wire.update(lease, b"{}")) == (403, "lease_required")
    assert await is_free(wire, "a")


async def test_a_release_is_remembered_as_the_decision(wire: Wire) -> None:
    committed, dropped = new_xid(), new_xid()
    await wire.release(await staged(wire, "a", committed))
    await wire.release(await staged(wire, "b", dropped), rollback=True)

    assert state(await call(wire, "replay", committed)) == "commit"
    assert state(await decide(wire, committed, "rollback", "a")) == "commit"
    assert state(await call(wire, "replay", dropped)) == "rollback"


async def test_a_lease_without_a_transaction_leaves_no_trace(wire: Wire) -> None:
    lease = await wire.acquire("a")
    assert state(await call(wire, "replay", lease.txn_id)) == "pending"
    await wire.release(lease)

    assert code(await call(wire, "replay", lease.txn_id)) == (404, "txn_not_found")


async def test_a_prepared_lease_belongs_to_its_transaction(wire: Wire) -> None:
    lease = await wire.acquire("a")
    await wire.update(lease, b'{"n":1}')
    await decide(wire, lease.txn_id, "pending", "a")

    await wire.release(lease)

    assert state(await call(wire, "replay", lease.txn_id)) == "commit"


async def test_a_commit_acks_the_messages_of_the_transaction(wire: Wire) -> None:
    txn_id = new_xid()
    await enqueue(wire, "work", b"w")
    delivered = await dequeue(wire, "work", txn_id=txn_id)
    key = f"q/work/msg/{delivered.message['message_id']}"

    assert state(await decide(wire, txn_id, "commit", key)) == "commit"

    acked = await wire.post("/v1/queue/ack", delivered.resolve())
    assert (acked.status_code, acked.json()["acked"]) == (200, True)
    assert (await take(wire, "work")).status_code == 409
    assert state(await call(wire, "replay", txn_id)) == "commit"


@pytest.mark.parametrize("path", ["/v1/queue/dequeue", "/v1/queue/dequeueWithState"])
async def test_the_release_of_a_key_acks_the_delivery_whose_id_it_joined(wire: Wire, path: str) -> None:
    await enqueue(wire, "work", b"w")
    delivered = await dequeue(wire, "work", path)
    lease = await staged(wire, "a", delivered.message["txn_id"])

    assert (await wire.release(lease)).json() == {"released": True}

    acked = await wire.post("/v1/queue/ack", delivered.resolve())
    assert (acked.status_code, acked.json()["acked"]) == (200, True)
    assert (await wire.read("a")).json() == {"n": 1}
    assert state(await call(wire, "replay", lease.txn_id)) == "commit"
    assert (await wire.get("/v1/txn/list")).json()["transactions"] == []


async def test_a_delivery_belongs_to_the_transaction_that_is_prepared_under_its_id(wire: Wire) -> None:
    await enqueue(wire, "work", b"w")
    delivered = await dequeue(wire, "work")
    txn_id = delivered.message["txn_id"]
    assert state(await decide(wire, txn_id, "pending", "a")) == "pending"

    assert (await wire.post("/v1/queue/ack", delivered.resolve())).status_code == 200

    assert state(await call(wire, "replay", txn_id)) == "commit"


async def test_a_commit_of_a_message_that_somebody_else_holds_is_refused(wire: Wire) -> None:
    await enqueue(wire, "work", b"w")
    delivered = await dequeue(wire, "work", txn_id=new_xid())
    key = f"q/work/msg/{delivered.message['message_id']}"
    stranger = new_xid()

    answer = await decide(wire, stranger, "commit", key)

    assert code(answer) == (409, "queue_message_lease_mismatch")
    assert (await wire.post("/v1/queue/ack", delivered.resolve())).status_code == 200


async def test_a_transaction_is_listed_until_it_is_over(wire: Wire) -> None:
    pending, doubtful = new_xid(), new_xid()
    lease = await staged(wire, "a", pending)
    await decide(wire, doubtful, "commit", participants=[participant("far", backend_hash=ELSEWHERE)])

    listed = (await wire.get("/v1/txn/list")).json()["transactions"]

    assert [(one["txn_id"], one["state"], one["in_doubt"]) for one in listed] == [
        (doubtful, "commit", True),
        (pending, "pending", False),
    ]
    assert listed[0]["participants"] == [participant("far", backend_hash=ELSEWHERE)]
    assert listed[1]["participants"] == [participant("a")]
    await wire.release(lease)
    rest = (await wire.get("/v1/txn/list", limit=1)).json()["transactions"]
    assert [one["txn_id"] for one in rest] == [doubtful]
