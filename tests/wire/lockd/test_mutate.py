"""Mutations on the wire: fields are changed on the server, and the result is staged like an update."""

import hashlib
import re

import httpx
import pytest

from tests.wire.lockd.conftest import Lease, Wire
from tests.wire.lockd.test_leases import OTHER_XID, refusal


async def mutate(wire: Wire, lease: Lease, *mutations: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await wire.post(
        "/v1/mutate", {"mutations": list(mutations)}, {**lease.headers, **named}, key=lease.key
    )


async def test_a_document_is_changed_staged_and_published(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b'{"n":1.10,"a":{"x":[1,2]},"gone":true}')
    await wire.release(lease)
    lease = await wire.acquire("orders")

    answer = await mutate(wire, lease, "/status=done", " ", "/a/count++", "rm:/gone")
    mine = await wire.post("/v1/get", headers=lease.headers, key="orders")
    public = await wire.read("orders")
    await wire.release(lease)

    text = b'{"n":1.10,"a":{"x":[1,2],"count":1},"status":"done"}'
    etag = hashlib.sha256(text).hexdigest()
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"new_version": 2, "new_state_etag": etag, "bytes": len(text), "metadata": {}}
    assert (answer.headers["etag"], answer.headers["x-key-version"]) == (etag, "2")
    assert (mine.content, mine.headers["etag"]) == (text, etag)
    assert public.content == b'{"n":1.10,"a":{"x":[1,2]},"gone":true}'
    assert (await wire.read("orders")).content == text
    counters = {
        name.removeprefix("x-lockd-mutate-"): int(value)
        for name, value in answer.headers.items()
        if name.startswith("x-lockd-mutate-")
    }
    assert counters == {
        "candidates-seen": 1,
        "candidates-written": 1,
        "bytes-read": 38,
        "bytes-written": len(text),
        "bytes-captured": len(text),
        "spill-count": 0,
        "spill-bytes": 0,
    }


async def test_without_a_document_mutations_begin_with_an_empty_object(wire: Wire) -> None:
    lease = await wire.acquire("orders")

    await mutate(wire, lease, "/n++")
    second = await mutate(wire, lease, "/n=+3", "/d{/x=1,/y=two}")
    await wire.release(lease)

    assert second.json()["new_version"] == 1
    assert (await wire.read("orders")).content == b'{"n":4,"d":{"x":1,"y":"two"}}'


async def test_now_is_the_time_of_the_server(wire: Wire) -> None:
    lease = await wire.acquire("orders")

    await mutate(wire, lease, "time:/t=NOW")

    mine = (await wire.post("/v1/get", headers=lease.headers, key="orders")).json()
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", mine["t"])


async def test_a_large_document_is_changed_through_a_blob(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    filling = b'"' + b"x" * 300_000 + b'"'
    await wire.update(lease, b'{"n":1,"filling":' + filling + b"}")

    answer = await mutate(wire, lease, "/n++")
    await wire.release(lease)

    text = b'{"n":2,"filling":' + filling + b"}"
    assert answer.json()["bytes"] == len(text)
    assert answer.headers["x-lockd-mutate-spill-count"] == "1"
    assert answer.headers["x-lockd-mutate-spill-bytes"] == str(len(text))
    assert (await wire.read("orders")).content == text


async def test_conditions_hold_as_for_an_update(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await mutate(wire, lease, "/n++")

    version = await mutate(wire, lease, "/n++", X_If_Version="7")
    etag = await mutate(wire, lease, "/n++", X_If_State_ETag="stale")
    hidden = await mutate(wire, lease, "/n++", X_If_Version="1", X_Lockd_Meta_Query_Hidden="true")

    assert refusal(version) == (409, "version_conflict")
    assert version.json()["current_version"] == 1
    assert refusal(etag) == (409, "etag_mismatch")
    assert hidden.json()["metadata"] == {"query_hidden": True}
    assert (await wire.post("/v1/get", headers=lease.headers, key="orders")).content == b'{"n":2}'


@pytest.mark.parametrize("expression", ["n=1", "/n", "file:/n=/etc/passwd", "/a{", "/n=+0", "/"])
async def test_an_expression_that_cannot_be_read_is_refused(wire: Wire, expression: str) -> None:
    lease = await wire.acquire("orders")

    assert refusal(await mutate(wire, lease, "/ok=1", expression)) == (400, "invalid_mutations")
    assert (await wire.post("/v1/get", headers=lease.headers, key="orders")).status_code == 204


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"mutations":[]}', b'{"mutations":[" "]}', b'{"mutations":"/a=1"}', b'{"x":1}', b"[]"],
)
async def test_a_body_without_mutations_is_refused(wire: Wire, body: bytes) -> None:
    lease = await wire.acquire("orders")

    assert refusal(await wire.post("/v1/mutate", body, lease.headers, key="orders")) == (400, "invalid_body")


async def test_only_an_object_and_only_numbers_can_be_changed(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b"[1]")
    no_object = await mutate(wire, lease, "/a=1")
    await wire.update(lease, b'{"a":"text"}')
    no_number = await mutate(wire, lease, "/a++")

    assert refusal(no_object) == (400, "invalid_body")
    assert refusal(no_number) == (400, "invalid_body")
    assert (await wire.post("/v1/get", headers=lease.headers, key="orders")).content == b'{"a":"text"}'


async def test_the_namespace_of_the_query_wins_over_that_of_the_body(wire: Wire) -> None:
    lease = await wire.acquire("orders", namespace="team-a")
    body = {"namespace": "team-b", "mutations": ["/n++"]}

    by_query = await wire.post("/v1/mutate", body, lease.headers, key="orders", namespace="team-a")
    by_body = await wire.post("/v1/mutate", {**body, "namespace": "team-a"}, lease.headers, key="orders")
    bad = await wire.post("/v1/mutate", {**body, "namespace": ".x"}, lease.headers, key="orders")

    assert (by_query.status_code, by_body.status_code) == (200, 200)
    assert refusal(bad) == (400, "invalid_namespace")


async def test_who_does_not_hold_the_lease_changes_nothing(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await mutate(wire, lease, "/n++")

    assert refusal(await mutate(wire, lease._replace(token=7), "/n++")) == (403, "fencing_mismatch")
    assert refusal(await mutate(wire, lease._replace(lease_id=OTHER_XID), "/n++")) == (403, "lease_required")
    assert refusal(await mutate(wire, lease._replace(txn_id=OTHER_XID), "/n++")) == (409, "txn_mismatch")
    broken = await mutate(wire, lease._replace(lease_id=OTHER_XID), "n")
    assert refusal(broken) == (400, "invalid_mutations")
    unnamed = await wire.post("/v1/mutate", {"mutations": ["/n++"]}, lease.headers)
    assert refusal(unnamed) == (400, "missing_key")
