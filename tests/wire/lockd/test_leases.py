"""Leases on the wire: the conversations that were recorded with lockd, and every row of its table of errors."""

import asyncio
import re

import httpx
import pytest

from tests.wire.lockd.conftest import Wire

XID = re.compile(r"[0-9a-v]{19}[0g]")
OTHER_XID = "c5v9d0sl70b3m3q8ndg0"


def refusal(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-correlation-id"]
    return answer.status_code, answer.json()["error"]


async def test_a_new_key_is_granted_with_token_one_and_version_zero(wire: Wire) -> None:
    answer = await wire.post(
        "/v1/acquire", {"key": "orders", "owner": "worker-1", "ttl_seconds": 30, "block_seconds": -1}
    )

    members = answer.json()
    assert answer.status_code == 200
    assert list(members) == [
        *("namespace", "lease_id", "txn_id", "key", "owner", "expires_at_unix", "version"),
        *("fencing_token", "correlation_id"),
    ]
    assert XID.fullmatch(members["lease_id"])
    assert XID.fullmatch(members["txn_id"])
    assert (members["namespace"], members["key"], members["owner"]) == ("default", "orders", "worker-1")
    assert (members["version"], members["fencing_token"]) == (0, 1)
    assert (answer.headers["x-fencing-token"], answer.headers["x-key-version"]) == ("1", "0")
    assert answer.headers["x-correlation-id"] == members["correlation_id"]
    assert answer.text.endswith("}\n")


@pytest.mark.parametrize("block_seconds", [-1, 1])
async def test_a_second_owner_is_told_to_wait(wire: Wire, block_seconds: int) -> None:
    await wire.acquire("orders")

    answer = await wire.post(
        "/v1/acquire", {"key": "orders", "owner": "worker-2", "block_seconds": block_seconds}
    )

    assert refusal(answer) == (409, "waiting")
    assert answer.json()["detail"] == "lease already held"
    assert 28 <= answer.json()["retry_after_seconds"] <= 31  # The end is a whole second, rounded up.
    assert answer.headers["retry-after"] == str(answer.json()["retry_after_seconds"])


async def test_a_waiter_gets_the_lease_when_its_holder_releases(wire: Wire) -> None:
    lease = await wire.acquire("w")
    waiting = asyncio.create_task(wire.acquire("w", block_seconds=10))
    await wire.read("w")

    await wire.release(lease)

    assert (await waiting).token == 2


@pytest.mark.parametrize("wire", ["lane", "asgi"], indirect=True)
async def test_a_waiter_that_hung_up_a_moment_before_the_release_gets_nothing(wire: Wire) -> None:
    lease = await wire.acquire("w")
    body = b'{"key":"w","owner":"gone","block_seconds":0}'
    head = b"POST /v1/acquire HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n" % len(body)
    _, waiter = await asyncio.open_connection("127.0.0.1", wire.port)
    waiter.write(head + body)
    while "holdfast_lease_waiters 1" not in await wire.metrics():
        continue

    waiter.close()
    await wire.release(lease)
    second = await wire.post("/v1/acquire", {"key": "w", "owner": "here", "block_seconds": 10})

    assert second.status_code == 200, second.text


async def test_waiting_for_ever_ends_with_the_lease_of_the_holder(wire: Wire) -> None:
    await wire.acquire("w", ttl_seconds=1)

    assert (await wire.acquire("w", block_seconds=0)).token == 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{bad", 400, "invalid_body"),
        (b"", 400, "invalid_body"),
        (b"[]", 400, "invalid_body"),
        (b'{"key":"k","owner":"w"} {}', 400, "invalid_body"),
        (b'{"key":"k","owner":"w","colour":"red"}', 400, "invalid_body"),
        (b'{"key":"k","owner":"w","ttl_seconds":"30"}', 400, "invalid_body"),
        (b'{"key":"k","owner":"w","ttl_seconds":9223372036854775808}', 400, "invalid_body"),
        (b'{"key":"k","owner":7}', 400, "invalid_body"),
        (b'{"key":"orders","ttl_seconds":30}', 400, "missing_owner"),
        ('{"key":"ключ","owner":"w"}'.encode(), 400, "invalid_key"),
        (b'{"key":"a//b","owner":"w"}', 400, "invalid_key"),
        (b'{"key":"a/","owner":"w"}', 400, "invalid_key"),
        (b'{"key":"a b","owner":"w"}', 400, "invalid_key"),
        (b'{"key":"a/../b","owner":"w"}', 400, "invalid_key"),
        (b'{"key":"..","owner":"w"}', 400, "invalid_key"),
        (b'{"key":"' + b"k" * 129 + b'","owner":"w"}', 400, "invalid_key"),
        (b'{"namespace":".txns","key":"k","owner":"w"}', 400, "invalid_namespace"),
        (b'{"namespace":"a/b","key":"k","owner":"w"}', 400, "invalid_namespace"),
        (b'{"namespace":"' + b"n" * 129 + b'","key":"k","owner":"w"}', 400, "invalid_namespace"),
        (b'{"key":"k","owner":"w","txn_id":"nope"}', 400, "invalid_txn"),
        (b'{"key":"k","owner":"w","txn_id":"C5V9D0SL70B3M3Q8NDG0"}', 400, "invalid_txn"),
        (b'{"key":"k","owner":"w","txn_id":"c5v9d0sl70b3m3q8ndg1"}', 400, "invalid_txn"),
    ],
)
async def test_acquire_refuses_what_it_does_not_understand(
    wire: Wire, body: bytes, status: int, code: str
) -> None:
    assert refusal(await wire.post("/v1/acquire", body)) == (status, code)


@pytest.mark.parametrize("path", ["acquire", "keepalive", "release"])
async def test_a_body_above_the_limit_is_no_body_that_lockds_clients_know(wire: Wire, path: str) -> None:
    body = {"key": "orders", "owner": "o" * (1 << 20)}

    answer = await wire.post(f"/v1/{path}", body, {"X-Fencing-Token": "1"})

    assert refusal(answer) == (400, "invalid_body")


async def test_the_server_makes_up_a_key(wire: Wire) -> None:
    lease = await wire.acquire("")

    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", lease.key)


async def test_names_are_stored_in_lower_case_and_told_as_they_were_spelled(wire: Wire) -> None:
    answer = await wire.post(
        "/v1/acquire",
        {"namespace": "Team-A", "key": " /team-a/Orders/EU ", "owner": "w", "block_seconds": -1},
        {"X-Correlation-Id": "job-4711"},
    )
    again = await wire.post(
        "/v1/acquire", {"namespace": "team-a", "key": "orders/eu", "owner": "w", "block_seconds": -1}
    )

    assert answer.json()["namespace"] == "team-a"
    assert answer.json()["correlation_id"] == answer.headers["x-correlation-id"] == "job-4711"
    assert answer.json()["key"] == "Orders/EU"
    assert refusal(again) == (409, "waiting")


async def test_create_only_refuses_a_key_that_exists(wire: Wire) -> None:
    await wire.release(await wire.acquire("new", if_not_exists=True))

    answer = await wire.post("/v1/acquire", {"key": "new", "owner": "w", "if_not_exists": True})

    assert refusal(answer) == (409, "already_exists")


@pytest.mark.parametrize(("asked", "granted"), [(0, 30), (-5, 30), (45, 45), (99_999, 1800)])
async def test_the_time_of_a_lease_has_a_default_and_a_maximum(wire: Wire, asked: int, granted: int) -> None:
    answer = await wire.post("/v1/acquire", {"key": "k", "owner": "w", "ttl_seconds": asked})
    lease = answer.json()
    kept = await wire.post(
        "/v1/keepalive",
        {"key": "k", "lease_id": lease["lease_id"], "txn_id": lease["txn_id"], "ttl_seconds": asked},
        {"X-Fencing-Token": "1"},
    )
    described = (await wire.get("/v1/describe", key="k")).json()

    # Seconds pass between two requests on a busy machine; what was granted differs by more.
    assert abs(kept.json()["expires_at_unix"] - lease["expires_at_unix"]) <= 10
    assert abs(described["expires_at_unix"] - lease["expires_at_unix"]) <= 10
    waiting = await wire.post("/v1/acquire", {"key": "k", "owner": "v", "block_seconds": -1})
    assert granted - 10 <= waiting.json()["retry_after_seconds"] <= granted + 1


async def test_keepalive_answers_the_new_end_and_the_token(wire: Wire) -> None:
    lease = await wire.acquire("orders")

    answer = await wire.post(
        "/v1/keepalive",
        {"namespace": "default", "key": "orders", "lease_id": lease.lease_id, "ttl_seconds": 45},
        {"X-Fencing-Token": "1", "X-Txn-ID": lease.txn_id},
    )

    assert answer.status_code == 200
    assert list(answer.json()) == ["expires_at_unix"]
    assert answer.headers["x-fencing-token"] == "1"


@pytest.mark.parametrize("path", ["/v1/keepalive", "/v1/release"])
async def test_what_a_claim_lacks_is_told_in_order(wire: Wire, path: str) -> None:
    lease = await wire.acquire("orders")
    token = {"X-Fencing-Token": "1"}
    whole = {"key": "orders", "lease_id": lease.lease_id, "txn_id": lease.txn_id}

    asked: list[tuple[object, dict[str, str], tuple[int, str]]] = [
        (b"{bad", {}, (400, "missing_fencing_token")),
        (b"{bad", {"X-Fencing-Token": "abc"}, (400, "invalid_fencing_token")),
        (b"{bad", token, (400, "invalid_body")),
        ({**whole, "colour": 1}, token, (400, "invalid_body")),
        ({**whole, "namespace": ".x", "key": ""}, token, (400, "invalid_namespace")),
        ({**whole, "key": ""}, token, (400, "missing_key")),
        ({**whole, "key": "a b"}, token, (400, "invalid_key")),
        ({**whole, "lease_id": ""}, token, (400, "missing_lease")),
        ({**whole, "txn_id": ""}, token, (400, "missing_txn")),
        ({**whole, "txn_id": OTHER_XID}, token, (409, "txn_mismatch")),
    ]
    for body, headers, wanted in asked:
        assert refusal(await wire.post(path, body, headers)) == wanted


async def test_keepalive_refuses_who_does_not_hold_the_lease(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    body = {"key": "orders", "lease_id": lease.lease_id, "txn_id": lease.txn_id}

    stale = await wire.post("/v1/keepalive", body, {"X-Fencing-Token": "9"})
    other = await wire.post("/v1/keepalive", {**body, "lease_id": OTHER_XID}, {"X-Fencing-Token": "1"})
    unknown = await wire.post("/v1/keepalive", {**body, "key": "never"}, {"X-Fencing-Token": "1"})
    queue = await wire.post("/v1/keepalive", {**body, "key": "q/jobs/state/1"}, {"X-Fencing-Token": "1"})

    assert refusal(stale) == (403, "fencing_mismatch")
    assert refusal(other) == (403, "lease_required")
    assert refusal(unknown) == (403, "lease_required")
    assert refusal(queue) == (403, "queue_state_keepalive_unsupported")


async def test_release_is_idempotent_and_never_ends_another_holders_lease(wire: Wire) -> None:
    old = await wire.acquire("orders")
    assert (await wire.release(old)).json() == {"released": True}
    new = await wire.acquire("orders")

    for answer in (
        await wire.release(old),
        await wire.release(new._replace(token=9)),
        await wire.release(new._replace(lease_id=OTHER_XID)),
        await wire.release(old._replace(key="never")),
    ):
        assert (answer.status_code, answer.json()) == (200, {"released": True})

    assert (
        refusal(await wire.post("/v1/acquire", {"key": "orders", "owner": "w", "block_seconds": -1}))[0]
        == 409
    )


async def test_describe_shows_the_lease_and_then_not(wire: Wire) -> None:
    lease = await wire.acquire("Orders")
    held = (await wire.get("/v1/describe", key="Orders", namespace="default")).json()
    await wire.release(lease)
    free = (await wire.get("/v1/describe", key="orders")).json()
    unknown = (await wire.get("/v1/describe", key="never")).json()

    assert (held["key"], held["owner"], held["lease_id"]) == ("Orders", "worker-1", lease.lease_id)
    assert held["expires_at_unix"] > held["updated_at_unix"]
    assert (held["version"], held["metadata"]) == (0, {})
    assert "lease_id" not in free
    assert unknown == {"namespace": "default", "key": "never", "version": 0, "metadata": {}}
    assert refusal(await wire.get("/v1/describe")) == (400, "missing_key")
    assert refusal(await wire.get("/v1/describe", key="a b")) == (400, "invalid_key")
    assert refusal(await wire.get("/v1/describe", key="a", namespace=".x")) == (400, "invalid_namespace")


async def test_joined_keys_are_published_by_one_release(wire: Wire) -> None:
    first = await wire.acquire("a")
    second = await wire.acquire("b", txn_id=first.txn_id)
    for lease in (first, second):
        assert (await wire.update(lease, b'{"n":1}')).status_code == 200

    await wire.release(second)
    late = await wire.release(first, rollback=True)

    assert late.json() == {"released": True}
    assert [(await wire.read(key)).text for key in ("a", "b")] == ['{"n":1}'] * 2


async def test_an_unknown_path_is_plain_text(wire: Wire) -> None:
    answer = await wire.get("/v1/nothing")

    assert (answer.status_code, answer.text) == (404, "404 page not found\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
