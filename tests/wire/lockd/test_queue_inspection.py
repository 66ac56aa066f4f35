"""Looking at queues on the wire: stats, peek, policy, pause, dead letters."""

import asyncio
from base64 import b64decode
from typing import Any

from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import dequeue, enqueue, take
from tests.wire.lockd.test_leases import refusal
from tests.wire.lockd.test_queue import UNKNOWN, is_soon

LARGE = b"0123456789abcdef" * 20_000


async def asked(wire: Wire, path: str, **body: object) -> dict[str, Any]:
    answer = await wire.post(f"/v1/queue/{path}", {"queue": "orders", **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def stats_with(wire: Wire, **expected: int) -> dict[str, Any]:
    """What one node counts of what another one did, it counts as soon as it has heard of it."""
    told = await asked(wire, "stats")
    for _ in range(100 if wire.nodes > 1 else 0):
        if told.items() >= expected.items():
            break
        await asyncio.sleep(0.05)
        told = await asked(wire, "stats")
    return told


async def bury(wire: Wire, payload: bytes = b"", **meta: object) -> str:
    """A message that has used up its attempts."""
    told = await enqueue(wire, "orders", payload, None, max_attempts=1, **meta)
    taken = await dequeue(wire, "orders")
    await wire.post("/v1/queue/nack", taken.resolve(last_error={"detail": "no"}))
    return str(told["message_id"])


async def test_stats_tell_consumers_and_head(wire: Wire) -> None:
    empty = await asked(wire, "stats")
    sent = await enqueue(wire, "orders")
    await enqueue(wire, "orders")
    full = await stats_with(wire, pending_candidates=2)
    await dequeue(wire, "orders")
    out = await stats_with(wire, in_flight=1)

    assert list(empty) == [
        *("namespace", "queue", "waiting_consumers", "pending_candidates", "total_consumers"),
        *("has_active_watcher", "available", "in_flight", "paused", "correlation_id"),
    ]
    assert (empty["available"], empty["has_active_watcher"], empty["in_flight"]) == (False, True, 0)
    assert (full["available"], full["head_message_id"]) == (True, sent["message_id"])
    assert full["pending_candidates"] == 2
    assert is_soon(0, full["head_enqueued_at_unix"])
    assert is_soon(0, full["head_not_visible_until_unix"])
    assert full["head_age_seconds"] in (0, 1)
    assert (out["in_flight"], out["pending_candidates"]) == (1, 1)


async def test_a_peek_shows_what_leaves_next_and_takes_nothing(wire: Wire) -> None:
    first = await enqueue(
        wire, "orders", b"one", {"X-Correlation-Id": "req-1"}, attributes={"a": [1]}, ttl_seconds=60
    )
    await enqueue(wire, "orders", LARGE, priority=1)
    await enqueue(wire, "orders", delay_seconds=60)

    one = await asked(wire, "peek")
    both = await asked(wire, "peek", limit=1000, payloads=True)

    (message,) = one["messages"]
    assert message["message_id"] == first["message_id"]
    assert (message["attributes"], message["correlation_id"], message["payload_bytes"]) == (
        {"a": [1]},
        "req-1",
        3,
    )
    assert is_soon(60, message["expires_at_unix"])
    assert "payload_base64" not in message
    assert [b64decode(found.get("payload_base64", "")) for found in both["messages"]] == [b"one", b""]
    assert [found.get("priority") for found in both["messages"]] == [None, 1]
    assert (await dequeue(wire, "orders")).message["attempts"] == 1


async def test_a_policy_holds_for_messages_that_say_nothing_else(wire: Wire) -> None:
    default = await asked(wire, "policy")
    changed = await asked(wire, "policy", max_attempts=2, visibility_timeout_seconds=77, ttl_seconds=600)
    again = await asked(wire, "policy", ttl_seconds=0)
    plain = await enqueue(wire, "orders")
    own = await enqueue(wire, "orders", max_attempts=9)
    taken = await dequeue(wire, "orders")

    assert (default["max_attempts"], default["visibility_timeout_seconds"], default["paused"]) == (
        0,
        0,
        False,
    )
    assert (changed["max_attempts"], changed["visibility_timeout_seconds"], changed["ttl_seconds"]) == (
        2,
        77,
        600,
    )
    assert (again["max_attempts"], again["ttl_seconds"]) == (2, 0)
    assert (plain["max_attempts"], own["max_attempts"]) == (2, 9)
    assert taken.message["visibility_timeout_seconds"] == 77


async def test_a_policy_that_can_not_hold_is_refused(wire: Wire) -> None:
    changes: list[dict[str, object]] = [
        {"max_attempts": -1},
        {"visibility_timeout_seconds": 1 << 40},
        {"ttl_seconds": -5},
        {"deliveries_per_second": -1.0},
    ]
    for change in changes:
        answer = await wire.post("/v1/queue/policy", {"queue": "orders", **change})

        assert refusal(answer) == (400, "invalid_policy"), change


async def test_a_paused_queue_takes_messages_and_gives_none(wire: Wire) -> None:
    paused = await asked(wire, "pause")
    await enqueue(wire, "orders", b"hello")
    held = await take(wire, "orders")
    resumed = await asked(wire, "resume")
    taken = await dequeue(wire, "orders", wait_seconds=5)  # Another node hears of it a moment later.

    assert (paused["paused"], resumed["paused"]) == (True, False)
    assert refusal(held) == (409, "waiting")
    assert taken.payload == b"hello"


async def test_dead_letters_are_listed_with_what_became_of_them(wire: Wire) -> None:
    ids = [await bury(wire, b"one", attributes={"a": 1}), await bury(wire), await bury(wire)]

    page = await asked(wire, "dlq/list", limit=2)
    rest = await asked(wire, "dlq/list", limit=2, after=page["next_after"])

    assert [message["message_id"] for message in page["messages"] + rest["messages"]] == ids
    assert page["next_after"] == ids[1]
    assert "next_after" not in rest
    letter = page["messages"][0]
    assert (letter["attempts"], letter["failure_attempts"], letter["max_attempts"]) == (1, 1, 1)
    assert (letter["attributes"], letter["payload_bytes"]) == ({"a": 1}, 3)
    assert letter["last_error"]["reason"] == "max_attempts_exceeded"
    assert is_soon(0, letter["dead_at_unix"])
    assert refusal(await take(wire, "orders")) == (409, "waiting")


async def test_dead_letters_go_back_into_the_queue(wire: Wire) -> None:
    ids = [await bury(wire, payload) for payload in (b"one", b"two", b"three")]

    one = await asked(wire, "dlq/redrive", message_ids=[ids[1], UNKNOWN])
    taken = await dequeue(wire, "orders")
    rest = await asked(wire, "dlq/redrive")
    none = await asked(wire, "dlq/redrive")

    assert (one["redriven"], rest["redriven"], none["redriven"]) == (1, 2, 0)
    assert (taken.message["message_id"], taken.payload) == (ids[1], b"two")
    assert "failure_attempts" not in taken.message
    assert {(await dequeue(wire, "orders")).payload for _ in range(2)} == {b"one", b"three"}


async def test_dead_letters_are_purged(wire: Wire) -> None:
    ids = [await bury(wire), await bury(wire), await bury(wire)]

    one = await asked(wire, "dlq/purge", message_ids=[ids[2]])
    limited = await asked(wire, "dlq/purge", limit=1)
    left = await asked(wire, "dlq/list")
    rest = await asked(wire, "dlq/purge")

    assert (one["purged"], limited["purged"], rest["purged"]) == (1, 1, 1)
    assert [message["message_id"] for message in left["messages"]] == [ids[1]]
    assert (await asked(wire, "dlq/list"))["messages"] == []


async def test_a_choice_of_no_dead_letter_is_refused(wire: Wire) -> None:
    for path in ("redrive", "purge"):
        none = await wire.post(f"/v1/queue/dlq/{path}", {"queue": "orders", "message_ids": []})
        many = await wire.post(f"/v1/queue/dlq/{path}", {"queue": "orders", "message_ids": ["x"] * 1001})

        assert refusal(none) == (400, "invalid_body")
        assert refusal(many) == (413, "batch_too_large")
