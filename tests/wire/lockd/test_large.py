"""Documents that do not fit into a record: streamed in and out, compacted on the way, refused above the limit."""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.memory import taking_little_memory
from tests.system.cli import serving
from tests.wire.lockd.conftest import Wire, split_wire
from tests.wire.lockd.test_leases import OTHER_XID, refusal

JSON_BYTES_MAX = 300_000


@asynccontextmanager
async def plane(store: str, entrance: str, json_bytes_max: int = JSON_BYTES_MAX) -> AsyncIterator[Wire]:
    if entrance == "split":
        async with split_wire(store, json_bytes_max=json_bytes_max) as wire:
            yield wire
        return
    app = create_app(GatewaySettings.isolated(store=store, json_bytes_max=json_bytes_max))
    options = ServeOptions(is_express=entrance == "lane", drain_grace_s=0)
    async with running(app, Listener("127.0.0.1:0"), options=options) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", timeout=60) as client:
            yield Wire(client)


@pytest.fixture(params=["lane", "asgi", pytest.param("split", marks=pytest.mark.long)])
async def small_limit(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """A plane that takes no documents above JSON_BYTES_MAX."""
    store = str(request.getfixturevalue("postgres_url")) if request.param == "split" else "mem://"
    async with plane(store, request.param) as wire:
        yield wire


@pytest.fixture
def durable_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"disk://{tmp_path}/store"


def spaced(size_bytes: int) -> bytes:
    """A document with white space between all of its tokens."""
    item = b'{ "a" : [ 1.10 , "x y" ] } , '
    return b"[ " + item * (size_bytes // len(item)) + b" null ]"


def tight(document: bytes) -> bytes:
    return document.replace(b"x y", b"x_y").replace(b" ", b"").replace(b"x_y", b"x y")


async def pieces(body: bytes, size_bytes: int = 10_007) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size_bytes):
        yield body[start : start + size_bytes]


async def test_a_large_document_is_compacted_staged_and_published(small_limit: Wire) -> None:
    body = spaced(250_000)
    text = tight(body)
    etag = hashlib.sha256(text).hexdigest()
    lease = await small_limit.acquire("big")

    staged = await small_limit.update(
        lease, body, X_Expected_SHA256=hashlib.sha256(body).hexdigest(), X_Expected_Bytes=str(len(body))
    )
    mine = await small_limit.post("/v1/get", headers=lease.headers, key="big")
    public = await small_limit.read("big")
    await small_limit.release(lease)
    published = await small_limit.read("big")

    assert staged.json() == {"new_version": 1, "new_state_etag": etag, "bytes": len(text), "metadata": {}}
    assert mine.content == published.content == text
    assert (mine.headers["etag"], mine.headers["x-fencing-token"]) == (etag, "1")
    assert public.status_code == 204
    assert published.headers["content-type"] == "application/json"
    assert published.headers["content-length"] == str(len(text))
    assert (published.headers["etag"], published.headers["x-key-version"]) == (etag, "1")


async def test_a_large_document_may_come_in_chunks_and_become_small(small_limit: Wire) -> None:
    lease = await small_limit.acquire("big")
    body = b'{"a":' + b" " * 200_000 + b"1}"

    staged = await small_limit.request("POST", "/v1/update", pieces(body), lease.headers, key="big")
    await small_limit.release(lease)

    assert staged.json()["bytes"] == 7
    assert (await small_limit.read("big")).content == b'{"a":1}'


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" + b"1," * 50_000 + b"]", id="comma"),
        pytest.param(b"[" + b"1," * 50_000, id="end"),
        pytest.param(b'"' + b"x" * 100_000 + b'" 1', id="second value"),
        pytest.param(b'"' + b"x" * 100_000 + b'\xff"', id="no utf-8"),
    ],
)
async def test_a_large_body_that_is_not_one_json_value_is_refused(small_limit: Wire, body: bytes) -> None:
    lease = await small_limit.acquire("big")

    assert refusal(await small_limit.update(lease, body)) == (400, "invalid_body")
    stranger = await small_limit.update(lease._replace(lease_id=OTHER_XID), body)
    assert refusal(stranger) == (400, "invalid_body")
    assert (await small_limit.post("/v1/get", headers=lease.headers, key="big")).status_code == 204


async def test_a_document_above_the_limit_is_a_bad_body(small_limit: Wire) -> None:
    lease = await small_limit.acquire("big")
    exact = b'"' + b"x" * (JSON_BYTES_MAX - 2) + b'"'
    above = b'"' + b"x" * (JSON_BYTES_MAX - 1) + b'"'

    assert refusal(await small_limit.update(lease, above)) == (400, "invalid_body")
    chunked = await small_limit.request("POST", "/v1/update", pieces(above), lease.headers, key="big")
    assert refusal(chunked) == (400, "invalid_body")
    unnamed = await small_limit.post("/v1/update", above, lease.headers)
    assert refusal(unnamed) == (400, "missing_key")
    assert (await small_limit.update(lease, exact)).json()["bytes"] == JSON_BYTES_MAX


async def test_a_large_body_that_is_not_the_announced_one_stages_nothing(small_limit: Wire) -> None:
    lease = await small_limit.acquire("big")
    body = spaced(100_000)

    size = await small_limit.update(lease, body, X_Expected_Bytes="9", X_Expected_SHA256="0" * 64)
    digest = await small_limit.update(lease, body, X_Expected_SHA256="0" * 64)

    assert refusal(size) == (409, "expected_bytes_mismatch")
    assert refusal(digest) == (409, "expected_sha256_mismatch")
    assert (await small_limit.post("/v1/get", headers=lease.headers, key="big")).status_code == 204


async def test_the_lease_of_a_large_update_is_checked_after_its_body(small_limit: Wire) -> None:
    lease = await small_limit.acquire("big")
    body = spaced(100_000)

    assert refusal(await small_limit.update(lease._replace(token=7), body)) == (403, "fencing_mismatch")
    version = await small_limit.update(lease, body, X_If_Version="3")
    assert refusal(version) == (409, "version_conflict")


async def test_a_mutation_above_the_limit_stages_nothing(small_limit: Wire) -> None:
    lease = await small_limit.acquire("big")
    await small_limit.update(lease, b'{"filling":"' + b"x" * (JSON_BYTES_MAX - 20) + b'"}')

    answer = await small_limit.post(
        "/v1/mutate", {"mutations": ["/more=0123456789"]}, lease.headers, key="big"
    )
    mine = await small_limit.post("/v1/get", headers=lease.headers, key="big")

    assert refusal(answer) == (413, "document_too_large")
    assert b"more" not in mine.content


@pytest.mark.parametrize(
    ("durable_store", "entrance"),
    [
        ("disk", "lane"),
        ("disk", "asgi"),
        ("postgres", "lane"),
        ("postgres", "asgi"),
        pytest.param("postgres", "split", marks=pytest.mark.long),
    ],
    indirect=["durable_store"],
)
async def test_the_main_path_on_durable_stores(durable_store: str, entrance: str) -> None:
    body = spaced(200_000)
    async with plane(durable_store, entrance) as wire:
        lease = await wire.acquire("big")
        await wire.update(lease, body)
        await wire.attach(lease, "small", b"hello")
        await wire.attach(lease, "large", body)
        await wire.release(lease)
        lease = await wire.acquire("big")
        await wire.update(lease, b"2")
        await wire.release(lease, rollback=True)
    async with plane(durable_store, entrance) as wire:
        read = await wire.read("big")
        listed = await wire.list_attachments("big")
        small, large = [await wire.download("big", name=name) for name in ("small", "large")]
        lease = await wire.acquire("big")
        await wire.post("/v1/remove", None, lease.headers, key="big")
        await wire.release(lease)
        removed = await wire.read("big")
        empty = await wire.list_attachments("big")

    assert (read.content, read.headers["x-key-version"]) == (tight(body), "1")
    assert [info["name"] for info in listed.json()["attachments"]] == ["large", "small"]
    assert (small.content, large.content) == (b"hello", body)
    assert removed.status_code == 204
    assert empty.json()["attachments"] == []


def move_100_mb(client: httpx.Client) -> None:
    """A document in and out, and an attachment in, each of 100 MB."""
    item = json.dumps({"id": 1234567, "name": "some text", "tags": ["a", "b"]}).encode() + b",\n"
    count = 100_000_000 // len(item)
    one_piece = item * 1000

    def body() -> Iterator[bytes]:
        yield b"[ "
        for _ in range(count // 1000):
            yield one_piece
        yield b" 0 ]"

    asked = {"key": "big", "owner": "worker", "ttl_seconds": 300, "block_seconds": -1}
    granted = client.post("/v1/acquire", json=asked).json()
    claim = {
        "X-Lease-ID": granted["lease_id"],
        "X-Txn-ID": granted["txn_id"],
        "X-Fencing-Token": str(granted["fencing_token"]),
    }
    updated = client.post("/v1/update", params={"key": "big"}, content=body(), headers=claim)
    digest = hashlib.sha256()
    with client.stream("POST", "/v1/get", params={"key": "big"}, headers=claim) as read:
        for piece in read.iter_raw():
            digest.update(piece)
    attached = client.post(
        "/v1/attachments", params={"key": "big", "name": "a"}, content=body(), headers=claim
    )

    assert updated.status_code == 200, updated.text
    assert updated.json()["bytes"] > 80_000_000
    assert digest.hexdigest() == updated.json()["new_state_etag"]
    assert attached.json()["attachment"]["size"] > 95_000_000


@pytest.mark.parametrize("express", ["--express", "--no-express"])
def test_100_mb_in_and_out_take_less_than_64_mb_of_memory(tmp_path: Path, express: str) -> None:
    with (
        serving(tmp_path, "--listen", "127.0.0.1:0", express, "--qrf-disabled") as server,
        httpx.Client(base_url=server.url, timeout=120) as client,
        taking_little_memory(server.process.pid),
    ):
        move_100_mb(client)
