"""State on the wire: staged, read by its holder, published by release; and what is refused."""

import hashlib

import pytest

from tests.wire.lockd.conftest import Lease, Wire
from tests.wire.lockd.test_leases import OTHER_XID, refusal


def etag(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


async def test_a_document_is_staged_seen_by_its_holder_and_published_by_release(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    empty = await wire.post("/v1/get", headers=lease.headers, key="orders", namespace="default")

    staged = await wire.update(lease, b' { "status" : "new",\n   "n": 1.10 } ')
    mine = await wire.post("/v1/get", headers=lease.headers, key="orders")
    public = await wire.read("orders")
    described = await wire.get("/v1/describe", key="orders")
    await wire.release(lease)
    published = await wire.read("orders")

    text = b'{"status":"new","n":1.10}'
    assert (empty.status_code, empty.content) == (204, b"")
    assert "etag" not in empty.headers
    assert staged.json() == {"new_version": 1, "new_state_etag": etag(text), "bytes": 25, "metadata": {}}
    assert (staged.headers["etag"], staged.headers["x-key-version"]) == (etag(text), "1")
    assert (mine.status_code, mine.content) == (200, text)
    assert (mine.headers["etag"], mine.headers["x-key-version"]) == (etag(text), "1")
    assert mine.headers["x-fencing-token"] == "1"
    assert public.status_code == 204
    assert described.json()["version"] == 0
    assert (published.status_code, published.content) == (200, text)
    assert published.headers["content-type"] == "application/json"
    assert (published.headers["etag"], published.headers["x-key-version"]) == (etag(text), "1")


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b"12345678901234567890.10e-5",
        rb'"\u00e9\/ \ud800"',
        '"é<&>"'.encode(),
        b'{"a":1,"a":2}',
        b"[[],{},[1,2.0,-0.0]]",
    ],
)
async def test_a_document_keeps_its_spelling(wire: Wire, text: bytes) -> None:
    lease = await wire.acquire("orders")
    answer = await wire.update(lease, b"\t" + text + b"\r\n")
    await wire.release(lease)

    assert answer.json()["bytes"] == len(text)
    assert (await wire.read("orders")).content == text


@pytest.mark.parametrize(
    "body", [b"", b'{"a":', b"{} {}", b"nul", b"01", b'"\x01"', b"\xff", b"NaN", b"{'a':1}"]
)
async def test_a_body_that_is_not_one_json_value_is_refused(wire: Wire, body: bytes) -> None:
    lease = await wire.acquire("orders")

    assert refusal(await wire.update(lease, body)) == (400, "invalid_body")
    assert refusal(await wire.update(lease._replace(lease_id=OTHER_XID), body)) == (400, "invalid_body")


async def test_conditions_are_compared_with_what_the_transaction_sees(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b'{"status":"new"}')

    version = await wire.update(lease, b"{}", X_If_Version="0")
    tag = await wire.update(lease, b"{}", X_If_State_ETag="stale")
    kept = await wire.post("/v1/get", headers=lease.headers, key="orders")
    quoted = await wire.update(
        lease, b'{"status":"ready"}', X_If_Version="1", X_If_State_ETag=f'"{etag(b"""{"status":"new"}""")}"'
    )

    assert refusal(version) == (409, "version_conflict")
    assert version.json()["current_version"] == 1
    assert "current_etag" not in version.json()
    assert refusal(tag) == (409, "etag_mismatch")
    assert tag.json()["current_etag"] == etag(b'{"status":"new"}')
    assert kept.content == b'{"status":"new"}'
    assert quoted.json()["new_version"] == 1


async def test_what_an_update_lacks_is_told_in_order(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    no_lease = {"X-Txn-ID": lease.txn_id, "X-Fencing-Token": "1"}
    no_txn = {"X-Lease-ID": lease.lease_id, "X-Fencing-Token": "1"}
    no_token = {"X-Lease-ID": lease.lease_id, "X-Txn-ID": lease.txn_id}

    for path in ("/v1/update", "/v1/remove", "/v1/metadata"):
        body = b'{"query_hidden":true}'
        assert refusal(await wire.post(path, body, lease.headers)) == (400, "missing_key")
        assert refusal(await wire.post(path, body, no_lease, key="orders")) == (400, "missing_lease")
        assert refusal(await wire.post(path, body, no_txn, key="orders")) == (400, "missing_txn")
        assert refusal(await wire.post(path, body, no_token, key="orders")) == (400, "missing_fencing_token")
        bad_token = {**no_token, "X-Fencing-Token": "abc"}
        assert refusal(await wire.post(path, body, bad_token, key="orders")) == (400, "invalid_fencing_token")
        bad_version = {**lease.headers, "X-If-Version": "x"}
        assert refusal(await wire.post(path, body, bad_version, key="orders")) == (400, "invalid_version")
        assert refusal(await wire.post(path, body, lease.headers, key="a b")) == (400, "invalid_key")
        named = await wire.post(path, body, lease.headers, key="orders", namespace=".x")
        assert refusal(named) == (400, "invalid_namespace")


@pytest.mark.parametrize("path", ["/v1/update", "/v1/remove", "/v1/metadata"])
async def test_who_does_not_hold_the_lease_stages_nothing(wire: Wire, path: str) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b'"one"')
    await wire.release(lease)
    lease = await wire.acquire("orders")
    body = b'{"query_hidden":true}'

    def claimed(other: Lease) -> dict[str, str]:
        return other.headers

    stale = await wire.post(path, body, claimed(lease._replace(token=1)), key="orders")
    foreign = await wire.post(path, body, claimed(lease._replace(txn_id=OTHER_XID)), key="orders")
    other = await wire.post(path, body, claimed(lease._replace(lease_id=OTHER_XID)), key="orders")
    unknown = await wire.post(path, body, claimed(lease), key="never")

    assert refusal(stale) == (403, "fencing_mismatch")
    assert refusal(foreign) == (409, "txn_mismatch")
    assert refusal(other) == (403, "lease_required")
    assert other.json()["current_version"] == 1
    assert other.json()["current_etag"] == etag(b'"one"')
    assert refusal(unknown) == (403, "lease_required")
    await wire.release(lease)
    assert (await wire.read("orders")).content == b'"one"'


async def test_a_paused_holder_is_refused_after_the_takeover(wire: Wire) -> None:
    old = await wire.acquire("exp", ttl_seconds=1)
    await wire.update(old, b'"staged"')
    new = await wire.acquire("exp", block_seconds=10)

    late = await wire.update(old, b'"zombie"')
    mixed = await wire.update(new._replace(token=old.token), b"{}")
    swallowed = await wire.release(old)
    mine = await wire.post("/v1/get", headers=new.headers, key="exp")

    assert refusal(late) == (403, "lease_required")
    assert refusal(mixed) == (403, "fencing_mismatch")
    assert swallowed.json() == {"released": True}
    assert mine.status_code == 204


async def test_a_rollback_leaves_what_was_published(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b'{"status":"ready"}')
    await wire.release(lease)
    lease = await wire.acquire("orders")

    removed = await wire.post("/v1/remove", None, lease.headers, key="orders")
    wrong = await wire.post("/v1/remove", None, {**lease.headers, "X-If-State-ETag": "stale"}, key="orders")
    enforced = await wire.post("/v1/remove", None, {**lease.headers, "X-If-Version": "7"}, key="orders")
    gone = await wire.post("/v1/get", headers=lease.headers, key="orders")
    public = await wire.read("orders")
    await wire.release(lease, rollback=True)
    after = await wire.read("orders")

    assert removed.json() == {"removed": True, "new_version": 2}
    assert removed.headers["x-key-version"] == "2"
    assert refusal(wrong) == (409, "etag_mismatch")
    assert wrong.json()["current_version"] == 2
    assert wrong.json()["current_etag"] == etag(b'{"status":"ready"}')
    assert refusal(enforced) == (409, "version_conflict")
    assert gone.status_code == 204
    assert public.content == after.content == b'{"status":"ready"}'
    assert after.headers["x-key-version"] == "1"


async def test_a_removal_is_published_like_everything_else(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    nothing = await wire.post("/v1/remove", None, lease.headers, key="orders")
    await wire.update(lease, b"1")
    await wire.release(lease)
    lease = await wire.acquire("orders")
    await wire.post("/v1/remove", None, lease.headers, key="orders")
    await wire.release(lease)

    described = (await wire.get("/v1/describe", key="orders")).json()
    assert nothing.json() == {"removed": False}
    assert (await wire.read("orders")).status_code == 204
    assert described["version"] == 2
    assert "state_etag" not in described


async def test_hiding_a_key_is_staged_and_adds_a_version(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b"1")
    await wire.release(lease)
    lease = await wire.acquire("orders")

    hidden = await wire.post("/v1/metadata", {"query_hidden": True}, lease.headers, key="orders")
    mine = await wire.post("/v1/get", headers=lease.headers, key="orders")
    public = await wire.read("orders")
    before = (await wire.get("/v1/describe", key="orders")).json()
    await wire.release(lease)
    after = (await wire.get("/v1/describe", key="orders")).json()

    wanted = {"namespace": "default", "key": "orders", "version": 2, "metadata": {"query_hidden": True}}
    assert hidden.json() == wanted
    assert hidden.headers["x-key-version"] == "2"
    assert (mine.content, mine.headers["x-key-version"]) == (b"1", "2")
    assert (public.content, public.headers["x-key-version"]) == (b"1", "1")
    assert before["metadata"] == {}
    assert (after["version"], after["metadata"]) == (2, {"query_hidden": True})


@pytest.mark.parametrize("body", [b"{}", b"", b'{"colour":1}', b'{"query_hidden":"yes"}', b"{bad", b"[]"])
async def test_metadata_without_a_usable_field_is_refused(wire: Wire, body: bytes) -> None:
    lease = await wire.acquire("orders")

    assert refusal(await wire.post("/v1/metadata", body, lease.headers, key="orders")) == (
        400,
        "invalid_metadata",
    )


async def test_metadata_above_its_limit_is_refused_as_any_other_that_cannot_be_used(wire: Wire) -> None:
    lease = await wire.acquire("orders")

    answer = await wire.post(
        "/v1/metadata", b'{"query_hidden":true}' + b" " * 4096, lease.headers, key="orders"
    )

    assert refusal(answer) == (400, "invalid_metadata")


async def test_the_header_hides_a_key_with_its_update_and_wins_over_the_body(wire: Wire) -> None:
    lease = await wire.acquire("orders")

    updated = await wire.update(lease, b"1", X_Lockd_Meta_Query_Hidden="t")
    bad = await wire.update(lease, b"1", X_Lockd_Meta_Query_Hidden="maybe")
    shown = await wire.post(
        "/v1/metadata",
        {"query_hidden": True},
        {**lease.headers, "X-Lockd-Meta-Query-Hidden": "0"},
        key="orders",
    )

    assert updated.json()["metadata"] == {"query_hidden": True}
    assert refusal(bad) == (400, "invalid_metadata")
    assert shown.json()["metadata"] == {}


async def test_the_body_as_sent_is_compared_with_what_was_meant(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    body = b' {"a": 1} '

    right = await wire.update(lease, body, X_Expected_SHA256=etag(body).upper(), X_Expected_Bytes="10")
    short = await wire.update(lease, body, X_Expected_Bytes="9", X_Expected_SHA256="0" * 64)
    other = await wire.update(lease, body, X_Expected_SHA256="0" * 64)

    assert right.status_code == 200
    assert refusal(short) == (409, "expected_bytes_mismatch")
    assert refusal(other) == (409, "expected_sha256_mismatch")
    assert refusal(await wire.update(lease, body, X_Expected_SHA256="xyz")) == (
        400,
        "invalid_expected_sha256",
    )
    assert refusal(await wire.update(lease, body, X_Expected_Bytes="-1")) == (400, "invalid_expected_bytes")


async def test_get_says_what_it_lacks(wire: Wire) -> None:
    assert refusal(await wire.post("/v1/get")) == (400, "missing_params")
    assert refusal(await wire.post("/v1/get", key="orders")) == (400, "missing_fencing_token")
    no_lease = await wire.post("/v1/get", headers={"X-Fencing-Token": "1"}, key="orders")
    assert refusal(no_lease) == (400, "missing_params")
    assert (await wire.get("/v1/get", key="orders", public="yes")).status_code == 204
    assert refusal(await wire.post("/v1/get", key="a b", public=1)) == (400, "invalid_key")


async def test_a_reader_that_has_the_document_is_told_so(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b'{"n":1}')
    await wire.release(lease)
    tag = etag(b'{"n":1}')

    for if_none_match in (tag, f'"{tag}"', f'W/"{tag}"', f'"other", W/"{tag}"', "*"):
        for ask in (wire.post, wire.get):
            same = await ask("/v1/get", headers={"If-None-Match": if_none_match}, key="orders", public=1)
            assert (same.status_code, same.content) == (304, b"")
            assert (same.headers["etag"], same.headers["x-key-version"]) == (tag, "1")
            assert not {"content-type", "content-length", "transfer-encoding"} & set(same.headers)

    other = await wire.get("/v1/get", {"If-None-Match": '"other"'}, key="orders", public=1)
    odd = await wire.get("/v1/get", {"If-None-Match": f'"{tag}'}, key="orders", public=1)
    long = await wire.get("/v1/get", {"If-None-Match": f'{tag}, "{"x" * 9000}"'}, key="orders", public=1)
    assert {other.content, odd.content, long.content} == {b'{"n":1}'}
    assert {other.status_code, odd.status_code, long.status_code} == {200}


async def test_no_document_is_no_document_whatever_the_reader_has(wire: Wire) -> None:
    lease = await wire.acquire("orders")

    nothing = await wire.get("/v1/get", {"If-None-Match": "*"}, key="orders", public=1)
    mine = await wire.post("/v1/get", None, {**lease.headers, "If-None-Match": "*"}, key="orders")
    await wire.update(lease, b"1")
    staged = await wire.get("/v1/get", {"If-None-Match": "*"}, key="orders", public=1)

    assert {nothing.status_code, mine.status_code, staged.status_code} == {204}
    assert "etag" not in nothing.headers


async def test_a_holder_compares_with_what_it_has_staged(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    await wire.update(lease, b"1")
    await wire.release(lease)
    lease = await wire.acquire("orders")
    await wire.update(lease, b"2")
    one, two = ({"If-None-Match": f'"{etag(text)}"'} for text in (b"1", b"2"))

    mine = await wire.post("/v1/get", None, {**lease.headers, **two}, key="orders")
    old = await wire.post("/v1/get", None, {**lease.headers, **one}, key="orders")
    public = await wire.get("/v1/get", one, key="orders", public=1)
    stale = await wire.post("/v1/get", None, {**lease._replace(token=9).headers, **two}, key="orders")
    await wire.release(lease)
    published = await wire.get("/v1/get", one, key="orders", public=1)

    assert (mine.status_code, mine.headers["etag"], mine.headers["x-key-version"]) == (304, etag(b"2"), "2")
    assert mine.headers["x-fencing-token"] == str(lease.token)
    assert (old.status_code, old.content) == (200, b"2")
    assert (public.status_code, public.headers["x-key-version"]) == (304, "1")
    assert refusal(stale) == (403, "fencing_mismatch")
    assert (published.status_code, published.content) == (200, b"2")
