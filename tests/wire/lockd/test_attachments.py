"""Attachments on the wire: staged, seen by their holder, published by release; and what is refused."""

import hashlib
import re

import pytest

from tests.wire.lockd.conftest import Lease, Wire
from tests.wire.lockd.test_leases import OTHER_XID, refusal

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


async def names(wire: Wire, lease: Lease | None = None, key: str = "files") -> list[str]:
    listed = await wire.list_attachments(key, lease)
    assert listed.status_code == 200, listed.text
    return [info["name"] for info in listed.json()["attachments"]]


async def test_an_attachment_is_staged_seen_by_its_holder_and_published_by_release(wire: Wire) -> None:
    lease = await wire.acquire("files")

    staged = await wire.attach(lease, "a.txt", b"hello", content_type="text/plain", namespace="default")
    public = await wire.list_attachments("files")
    mine = await wire.list_attachments("files", lease)
    read_early = await wire.download("files", name="a.txt")
    await wire.release(lease)
    read = await wire.download("files", name="a.txt")

    info = staged.json()["attachment"]
    created = info["created_at_unix"]
    assert staged.status_code == 200
    assert list(staged.json()) == ["attachment", "version"]
    assert UUID7.fullmatch(info["id"])
    assert info == {
        "id": info["id"],
        "name": "a.txt",
        "size": 5,
        "content_type": "text/plain",
        "created_at_unix": created,
        "updated_at_unix": created,
        "plaintext_sha256": hashlib.sha256(b"hello").hexdigest(),
    }
    assert staged.json()["version"] == 1
    assert staged.headers["x-attachment-id"] == info["id"]
    assert (staged.headers["x-fencing-token"], staged.headers["x-key-version"]) == ("1", "1")
    assert public.json() == {"namespace": "default", "key": "files", "attachments": []}
    assert mine.json() == {"namespace": "default", "key": "files", "attachments": [info]}
    assert refusal(read_early) == (404, "attachment_not_found")
    assert (read.status_code, read.content) == (200, b"hello")
    assert read.headers["content-type"] == "text/plain"
    assert read.headers["content-length"] == read.headers["x-attachment-size"] == "5"
    assert (read.headers["x-attachment-id"], read.headers["x-attachment-name"]) == (info["id"], "a.txt")
    assert read.headers["x-attachment-created-at"] == read.headers["x-attachment-updated-at"] == str(created)
    assert read.headers["x-attachment-sha256"] == info["plaintext_sha256"]
    assert (await wire.list_attachments("files")).json()["attachments"] == [info]


async def test_a_name_that_is_taken_is_kept_when_asked_for(wire: Wire) -> None:
    lease = await wire.acquire("files")
    first = await wire.attach(lease, "a.txt", b"hello")

    again = await wire.attach(lease, "a.txt", b"other", prevent_overwrite=1)
    read = await wire.download("files", lease, name="a.txt")

    assert list(again.json()) == ["attachment", "noop", "version"]
    assert again.json()["noop"] is True
    assert again.json()["attachment"] == first.json()["attachment"]
    assert again.json()["version"] == 1
    assert again.headers["x-attachment-id"] == first.headers["x-attachment-id"]
    assert "x-fencing-token" not in again.headers
    assert read.content == b"hello"


@pytest.mark.parametrize("is_committed", [True, False])
async def test_overwriting_keeps_the_id_and_the_time_of_creation(wire: Wire, is_committed: bool) -> None:
    lease = await wire.acquire("files")
    first = (await wire.attach(lease, "a", b"one")).json()["attachment"]
    if is_committed:
        await wire.release(lease)
        lease = await wire.acquire("files")

    second = (await wire.attach(lease, "a", b"three", content_type="x/y")).json()["attachment"]
    before = await wire.download("files", name="a")
    await wire.release(lease)

    assert (second["id"], second["created_at_unix"]) == (first["id"], first["created_at_unix"])
    assert (second["size"], second["content_type"]) == (5, "x/y")
    assert before.content == b"one" if is_committed else before.status_code == 404
    assert (await wire.download("files", name="a")).content == b"three"
    assert await names(wire) == ["a"]


async def test_the_content_type_is_that_of_the_query_then_of_the_header_then_bytes(wire: Wire) -> None:
    lease = await wire.acquire("files")

    by_query = await wire.attach(lease, "a", b"", {"Content-Type": "text/html"}, content_type="text/plain")
    by_header = await wire.attach(lease, "b", b"x", {"Content-Type": "text/html"})
    by_default = await wire.attach(lease, "c", b"x")

    types = [answer.json()["attachment"]["content_type"] for answer in (by_query, by_header, by_default)]
    assert types == ["text/plain", "text/html", "application/octet-stream"]


async def test_an_empty_attachment_has_no_size_to_tell(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.attach(lease, "empty", b"")
    await wire.release(lease)

    read = await wire.download("files", name="empty")

    assert (read.status_code, read.content) == (200, b"")
    assert "x-attachment-size" not in read.headers
    assert read.headers["x-attachment-sha256"] == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("size_bytes", [65_536, 65_537, 3_000_000])
async def test_an_attachment_of_any_size_comes_back_as_it_was(wire: Wire, size_bytes: int) -> None:
    content = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
    lease = await wire.acquire("files")

    staged = await wire.attach(lease, "a", content)
    mine = await wire.download("files", lease, name="a")
    await wire.release(lease)
    read = await wire.download("files", name="a")

    digest = hashlib.sha256(content).hexdigest()
    assert staged.json()["attachment"]["plaintext_sha256"] == digest
    assert staged.json()["attachment"]["size"] == size_bytes
    assert mine.content == read.content == content
    assert read.headers["content-length"] == read.headers["x-attachment-size"] == str(size_bytes)


@pytest.mark.parametrize("count", [1, 200])
async def test_a_chunked_upload_is_taken(wire: Wire, count: int) -> None:
    lease = await wire.acquire("files")

    staged = await wire.attach_chunked(lease, "a", [b"0123456789abcdef" * 64] * count)

    assert staged.status_code == 200, staged.text
    assert staged.json()["attachment"]["size"] == 1024 * count
    assert (await wire.download("files", lease, name="a")).content == b"0123456789abcdef" * 64 * count


async def test_an_upload_above_its_limit_stages_nothing(wire: Wire) -> None:
    lease = await wire.acquire("files")

    small = await wire.attach(lease, "b", b"12345", max_bytes=3)
    large = await wire.attach(lease, "b", b"x" * 200_000, max_bytes=199_999)
    exact = await wire.attach(lease, "c", b"x" * 200_000, max_bytes=200_000)
    unlimited = await wire.attach(lease, "d", b"12345", max_bytes=0)

    assert refusal(small) == refusal(large) == (413, "attachment_too_large")
    assert (exact.status_code, unlimited.status_code) == (200, 200)
    assert await names(wire, lease) == ["c", "d"]


async def test_a_list_is_in_the_order_of_the_bytes_of_its_names(wire: Wire) -> None:
    lease = await wire.acquire("files")
    for name in ("b", "ü/x y", "B", "a", "\U0001f600", "￿"):
        await wire.attach(lease, name, b"1")
    staged = await names(wire, lease)
    await wire.release(lease)

    assert staged == await names(wire) == ["B", "a", "b", "ü/x y", "￿", "\U0001f600"]
    read = await wire.download("files", name="ü/x y")
    assert dict(read.headers.raw)[b"x-attachment-name"] == "ü/x y".encode()


async def test_a_name_with_a_line_break_does_not_break_the_head_of_the_answer(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.attach(lease, "a\r\nX-Evil: 1", b"1")

    read = await wire.download("files", lease, name="a\r\nX-Evil: 1")

    assert read.status_code == 200
    assert read.headers["x-attachment-name"] == "a  X-Evil: 1"
    assert "x-evil" not in read.headers


async def test_an_attachment_is_found_by_its_name_its_id_or_both(wire: Wire) -> None:
    lease = await wire.acquire("files")
    first = (await wire.attach(lease, "a", b"one")).json()["attachment"]["id"]
    second = (await wire.attach(lease, "b", b"two")).json()["attachment"]["id"]
    mine = await wire.download("files", lease, id=second)
    await wire.release(lease)

    assert mine.content == b"two"
    assert (await wire.download("files", id=first)).content == b"one"
    assert (await wire.download("files", id=second, name="b")).content == b"two"
    for selector in ({"id": first, "name": "b"}, {"name": "zzz"}, {"id": OTHER_XID}, {"name": "A"}):
        assert refusal(await wire.download("files", None, **selector)) == (404, "attachment_not_found")
    assert refusal(await wire.download("files")) == (400, "missing_attachment")
    assert refusal(await wire.download("never", name="a")) == (404, "attachment_not_found")


async def test_one_is_deleted_and_then_all(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.attach(lease, "a.txt", b"hello")
    await wire.release(lease)
    lease = await wire.acquire("files")

    unknown = await wire.delete_attachment(lease, name="zzz")
    deleted = await wire.delete_attachment(lease, name="a.txt")
    again = await wire.delete_attachment(lease, name="a.txt")
    every = await wire.delete_attachments(lease)
    mine, public = await names(wire, lease), await names(wire)
    await wire.release(lease)

    assert unknown.json() == {"deleted": False, "version": 1}
    assert deleted.json() == {"deleted": True, "version": 2}
    assert (deleted.headers["x-fencing-token"], deleted.headers["x-key-version"]) == ("2", "2")
    assert again.json() == {"deleted": False, "version": 2}
    assert every.json() == {"deleted": 0, "version": 2}
    assert (every.headers["x-fencing-token"], every.headers["x-key-version"]) == ("2", "2")
    assert (mine, public, await names(wire)) == ([], ["a.txt"], [])
    assert (await wire.get("/v1/describe", key="files")).json()["version"] == 2


async def test_deleting_where_nothing_is_stages_nothing(wire: Wire) -> None:
    lease = await wire.acquire("files")

    one = await wire.delete_attachment(lease, id=OTHER_XID)
    every = await wire.delete_attachments(lease)
    await wire.release(lease)

    assert one.json() == {"deleted": False, "version": 0}
    assert every.json() == {"deleted": 0, "version": 0}
    assert "x-key-version" not in one.headers
    assert (await wire.get("/v1/describe", key="files")).json()["version"] == 0


async def test_uploads_after_delete_all_survive_it(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.attach(lease, "a", b"1")
    await wire.attach(lease, "b", b"1")
    await wire.release(lease)
    lease = await wire.acquire("files")
    await wire.attach(lease, "c", b"1")

    deleted = await wire.delete_attachments(lease)
    await wire.attach(lease, "a", b"2")
    mine, public = await names(wire, lease), await names(wire)
    await wire.release(lease)

    assert deleted.json() == {"deleted": 3, "version": 2}
    assert (mine, public) == (["a"], ["a", "b"])
    assert await names(wire) == ["a"]
    assert (await wire.download("files", name="a")).content == b"2"


async def test_a_name_that_was_deleted_and_comes_back_is_the_same_attachment(wire: Wire) -> None:
    lease = await wire.acquire("files")
    first = (await wire.attach(lease, "a", b"1")).json()["attachment"]
    await wire.release(lease)
    lease = await wire.acquire("files")

    await wire.delete_attachment(lease, name="a")
    back = (await wire.attach(lease, "a", b"2", prevent_overwrite=1)).json()
    await wire.release(lease)

    assert "noop" not in back
    assert back["attachment"]["id"] == first["id"]
    assert (await wire.download("files", name="a")).content == b"2"


async def test_a_rollback_drops_every_staged_change(wire: Wire) -> None:
    lease = await wire.acquire("files")
    for name in ("a", "b"):
        await wire.attach(lease, name, b"1")
    await wire.release(lease)
    lease = await wire.acquire("files")

    await wire.attach(lease, "a", b"2")
    await wire.attach(lease, "c", b"2")
    await wire.delete_attachment(lease, name="b")
    await wire.release(lease, rollback=True)
    lease = await wire.acquire("files")

    assert await names(wire) == await names(wire, lease) == ["a", "b"]
    assert (await wire.download("files", name="a")).content == b"1"
    assert (await wire.get("/v1/describe", key="files")).json()["version"] == 1


async def test_expiry_drops_staged_attachments(wire: Wire) -> None:
    old = await wire.acquire("files", ttl_seconds=1)
    await wire.attach(old, "a", b"1")

    new = await wire.acquire("files", block_seconds=10)

    assert await names(wire, new) == await names(wire) == []
    assert refusal(await wire.attach(old, "a", b"1")) == (403, "lease_required")


async def test_after_staging_an_attachment_the_document_has_the_staged_version(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.update(lease, b"1")
    await wire.release(lease)
    lease = await wire.acquire("files")

    await wire.attach(lease, "a", b"1")
    mine = await wire.post("/v1/get", headers=lease.headers, key="files")
    public = await wire.read("files")
    await wire.release(lease)

    assert (mine.content, mine.headers["x-key-version"]) == (b"1", "2")
    assert (public.content, public.headers["x-key-version"]) == (b"1", "1")
    assert (await wire.read("files")).headers["x-key-version"] == "2"


async def test_removing_a_key_removes_its_attachments(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.update(lease, b"1")
    await wire.attach(lease, "a", b"1")
    await wire.release(lease)
    lease = await wire.acquire("files")
    await wire.attach(lease, "b", b"1")

    await wire.post("/v1/remove", None, lease.headers, key="files")
    gone = await names(wire, lease)
    await wire.attach(lease, "c", b"1")
    still_gone = await names(wire, lease)
    public = await names(wire)
    await wire.release(lease)

    assert (gone, still_gone, public) == ([], [], ["a"])
    assert await names(wire) == []
    assert refusal(await wire.download("files", name="c")) == (404, "attachment_not_found")


async def test_an_update_after_a_removal_keeps_the_committed_attachments(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.update(lease, b"1")
    await wire.attach(lease, "a", b"1")
    await wire.release(lease)
    lease = await wire.acquire("files")
    await wire.attach(lease, "b", b"1")

    await wire.post("/v1/remove", None, lease.headers, key="files")
    updated = await wire.update(lease, b"2")
    await wire.release(lease)

    assert updated.json()["new_version"] == 3
    assert await names(wire) == ["a"]
    assert (await wire.read("files")).content == b"2"


async def test_a_key_with_attachments_alone_has_nothing_to_remove(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.attach(lease, "a", b"1")
    await wire.release(lease)
    lease = await wire.acquire("files")

    removed = await wire.post("/v1/remove", None, lease.headers, key="files")
    await wire.release(lease)

    assert removed.json() == {"removed": False, "new_version": 1}
    assert await names(wire) == ["a"]


async def test_joined_keys_publish_their_attachments_together(wire: Wire) -> None:
    first = await wire.acquire("one")
    second = await wire.acquire("two", txn_id=first.txn_id)
    await wire.attach(first, "a", b"1")
    await wire.attach(second, "b", b"2")
    before = await names(wire, key="one") + await names(wire, key="two")

    await wire.release(second)

    assert before == []
    assert (await names(wire, key="one"), await names(wire, key="two")) == (["a"], ["b"])


async def test_what_an_upload_lacks_is_told_in_order(wire: Wire) -> None:
    lease = await wire.acquire("files")
    no_lease = {"X-Txn-ID": lease.txn_id, "X-Fencing-Token": "1"}
    no_txn = {"X-Lease-ID": lease.lease_id, "X-Fencing-Token": "1"}
    no_token = {"X-Lease-ID": lease.lease_id, "X-Txn-ID": lease.txn_id}
    path, named = "/v1/attachments", {"key": "files", "name": "a"}

    assert refusal(await wire.post(path, b"", lease.headers, name="a")) == (400, "missing_key")
    unnamed = await wire.post(path, b"", lease.headers, key="files", namespace=".x", name=" ")
    assert refusal(unnamed) == (400, "missing_attachment")
    spaced = await wire.post(path, b"", lease.headers, **named, namespace=".x")
    assert refusal(spaced) == (400, "invalid_namespace")
    assert refusal(await wire.post(path, b"", no_lease, key="a b", name="a")) == (400, "invalid_key")
    assert refusal(await wire.post(path, b"", no_lease, **named)) == (400, "missing_lease")
    assert refusal(await wire.post(path, b"", no_txn, **named)) == (400, "missing_txn")
    assert refusal(await wire.post(path, b"", no_token, **named)) == (400, "missing_fencing_token")
    bad_token = {**no_token, "X-Fencing-Token": "x"}
    assert refusal(await wire.post(path, b"", bad_token, **named)) == (400, "invalid_fencing_token")
    for text in ("-1", "x", "9" * 20):
        limited = await wire.post(path, b"", lease.headers, **named, max_bytes=text)
        assert refusal(limited) == (400, "invalid_max_bytes")


async def test_who_does_not_hold_the_lease_neither_sees_nor_stages(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.attach(lease, "a", b"1")
    await wire.release(lease)
    lease = await wire.acquire("files")

    for false, wanted in (
        (lease._replace(token=1), (403, "fencing_mismatch")),
        (lease._replace(txn_id=OTHER_XID), (409, "txn_mismatch")),
        (lease._replace(lease_id=OTHER_XID), (403, "lease_required")),
    ):
        assert refusal(await wire.attach(false, "b", b"1")) == wanted
        assert refusal(await wire.list_attachments("files", false)) == wanted
        assert refusal(await wire.download("files", false, name="a")) == wanted
        assert refusal(await wire.delete_attachment(false, name="a")) == wanted
        assert refusal(await wire.delete_attachments(false)) == wanted
    assert await names(wire, lease) == ["a"]


async def test_what_a_read_lacks_is_told_in_order(wire: Wire) -> None:
    lease = await wire.acquire("files")
    for path in ("/v1/attachments", "/v1/attachment"):
        assert refusal(await wire.get(path)) == (400, "missing_key")
        assert refusal(await wire.get(path, key="files")) == (400, "missing_fencing_token")
        token = {"X-Fencing-Token": "1"}
        assert refusal(await wire.get(path, token, key="f", namespace=".x")) == (400, "invalid_namespace")
        assert refusal(await wire.get(path, token, key="files")) == (400, "missing_txn")
    with_txn = {"X-Fencing-Token": "1", "X-Txn-ID": lease.txn_id}
    assert refusal(await wire.get("/v1/attachment", with_txn, key="files")) == (400, "missing_attachment")
    assert refusal(await wire.get("/v1/attachment", with_txn, key="files", name="a")) == (
        400,
        "missing_lease",
    )
    assert refusal(await wire.get("/v1/attachments", with_txn, key="files")) == (400, "missing_lease")


@pytest.mark.parametrize(
    "query",
    [
        "name=%ff",
        "name=a&content_type=%c3%28",
        f"name={'n' * 1025}",
        "name=a%00b",
        "name=a&content_type=a%0d%0aX:1",
    ],
)
async def test_names_and_types_that_are_no_text_are_refused(wire: Wire, query: str) -> None:
    lease = await wire.acquire("files")

    answer = await wire.request("POST", f"/v1/attachments?key=files&{query}", b"x", lease.headers)

    assert refusal(answer) == (400, "invalid_attachment")
    assert await names(wire, lease) == []


@pytest.mark.parametrize("path", ["/v1/attachments", "/v1/attachment"])
async def test_another_method_is_told_so(wire: Wire, path: str) -> None:
    answer = await wire.request("PUT", path, b"x", key="files", name="x")

    assert refusal(answer) == (405, "method_not_allowed")
    assert answer.headers["allow"]


async def test_what_is_done_shows_in_the_metrics(wire: Wire) -> None:
    lease = await wire.acquire("files")
    await wire.attach(lease, "a", b"hello")
    await wire.list_attachments("files", lease)
    await wire.download("files", lease, name="a")
    await wire.download("files", name="a")
    await wire.delete_attachments(lease)

    shown = await wire.metrics()
    await wire.release(lease)
    after = await wire.metrics()

    assert "holdfast_lease_active 1\n" in shown
    assert 'holdfast_lease_acquire_total{namespace="default",result="ok"} 1\n' in shown
    for line in (
        'attach_total{namespace="default",result="ok"} 1',
        "attach_bytes_total 5",
        "list_items_total 1",
        'retrieve_total{namespace="default",result="ok"} 1',
        'retrieve_total{namespace="default",result="attachment_not_found"} 1',
        "retrieve_bytes_total 5",
        "delete_all_items_total 1",
    ):
        assert f"holdfast_attachments_{line}\n" in shown
    assert "holdfast_lease_active 0\n" in after
    assert 'holdfast_lease_release_total{namespace="default",result="ok"} 1\n' in after


def upload(lease: Lease, framing: str, body: bytes) -> bytes:
    claim = "".join(f"{name}: {value}\r\n" for name, value in lease.headers.items())
    target = f"/v1/attachments?key={lease.key}&name=a"
    return f"POST {target} HTTP/1.1\r\nHost: x\r\n{claim}{framing}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        pytest.param("Content-Length: 10", b"hello", id="short"),
        pytest.param("Content-Length: 300000", b"x" * 200_000, id="long"),
        pytest.param("Transfer-Encoding: chunked", b"5\r\nhello\r\n", id="chunks without an end"),
        pytest.param("Transfer-Encoding: chunked", b"20000\r\n" + b"x" * 70_000, id="half a chunk"),
    ],
)
async def test_a_body_that_is_cut_off_stages_nothing(wire: Wire, framing: str, body: bytes) -> None:
    lease = await wire.acquire("files")

    await wire.talk(upload(lease, framing, body), is_cut_off=True)
    mine = await names(wire, lease)
    await wire.release(lease)

    assert mine == await names(wire) == []
    assert (await wire.get("/v1/describe", key="files")).json()["version"] == 0


async def test_a_body_of_malformed_chunks_is_refused(wire: Wire) -> None:
    lease = await wire.acquire("files")

    small = await wire.talk(upload(lease, "Transfer-Encoding: chunked", b"5\r\nhello\r\nzz\r\n\r\n"))
    large = b"186a0\r\n" + b"x" * 100_000 + b"\r\nzz\r\n\r\n"
    late = await wire.talk(upload(lease, "Transfer-Encoding: chunked", large))

    assert small.startswith(b"HTTP/1.1 400 ")
    assert late == b"" or late.startswith(b"HTTP/1.1 400 ")
    assert await names(wire, lease) == []
