"""Queries through the index on the wire: always current, with the cursors, headers and trailers that clients look for."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.wire.lockd.conftest import Wire, split_wire
from tests.wire.lockd.test_leases import refusal
from tests.wire.lockd.test_query import eq, keys, publish, publish_orders, rows

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture(params=["lane", "asgi", pytest.param("split", marks=pytest.mark.long)])
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Wire]:
    """A plane over a durable store, where the index is on by default."""
    if request.param == "split":
        async with split_wire(str(request.getfixturevalue("postgres_url"))) as wire:
            yield wire
        return
    app = create_app(
        GatewaySettings.isolated(store=f"disk://{tmp_path}/store", storage_encryption_disabled=True)
    )
    options = ServeOptions(is_express=request.param == "lane", drain_grace_s=0)
    async with running(app, Listener("127.0.0.1:0"), options=options) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", timeout=20) as client:
            yield Wire(client)


async def test_the_index_is_preferred_on_durable_stores(durable: Wire) -> None:
    answer = await durable.get("/v1/namespace")

    assert answer.json()["query"] == {"preferred_engine": "index", "fallback_engine": "none"}


async def test_a_query_right_after_a_release_finds_its_document(durable: Wire) -> None:
    await publish_orders(durable)

    answer = await durable.post("/v1/query", {"selector": eq("/status", "open"), "limit": 1})

    members = answer.json()
    assert members["keys"] == ["orders/1"]
    assert members["cursor"] == answer.headers["x-lockd-query-cursor"] == "indexv1:b3JkZXJzLzE"
    assert members["index_seq"] == int(answer.headers["x-lockd-query-index-seq"]) > 0
    assert members["metadata"] == json.loads(answer.headers["x-lockd-query-metadata"])
    assert members["metadata"]["index_pending"] == "false"
    assert RFC3339.fullmatch(members["metadata"]["index_updated_at"])
    assert list(members) == ["namespace", "keys", "cursor", "index_seq", "metadata"]


async def test_pages_of_the_index_follow_each_other(durable: Wire) -> None:
    await publish_orders(durable)
    first = await durable.post("/v1/query", {"selector": eq("/status", "open"), "limit": 1})

    second = await durable.post(
        "/v1/query", {"selector": eq("/status", "open"), "limit": 1, "cursor": first.json()["cursor"]}
    )

    assert second.json()["keys"] == ["orders/2"]
    assert "cursor" not in second.json()


async def test_what_was_changed_hidden_or_removed_is_found_as_it_is_now(durable: Wire) -> None:
    await publish_orders(durable)
    await publish(durable, "orders/1", {"status": "closed"})
    await publish(durable, "orders/3", {"status": "open"}, X_Lockd_Meta_Query_Hidden="true")
    lease = await durable.acquire("orders/2")
    await durable.post("/v1/remove", None, lease.headers, key="orders/2")
    await durable.release(lease)

    assert await keys(durable, eq("/status", "open")) == []
    assert await keys(durable, eq("/status", "closed")) == ["orders/1"]
    assert await keys(durable) == ["list", "orders/1"]


async def test_an_empty_namespace_has_no_sequence(durable: Wire) -> None:
    answer = await durable.post("/v1/query", {"namespace": "nosuch"})

    assert answer.text == '{"namespace":"nosuch"}\n'


async def test_a_scan_is_not_available_unless_it_is_the_fallback(durable: Wire) -> None:
    await publish(durable, "k", {})

    before = await durable.post("/v1/query", {}, engine="scan")
    await durable.post("/v1/namespace", {"query": {"fallback_engine": "scan"}})
    afterwards = await durable.post("/v1/query", {}, engine="scan")

    assert refusal(before) == (400, "query_engine_unavailable")
    assert afterwards.json() == {"namespace": "default", "keys": ["k"]}


async def test_a_cursor_of_the_other_engine_is_refused(durable: Wire) -> None:
    assert refusal(await durable.post("/v1/query", {"cursor": "scanv1:YQ"})) == (400, "invalid_cursor")


async def test_a_flush_tells_the_sequence_of_the_index(durable: Wire) -> None:
    empty = await durable.post("/v1/index/flush", {"mode": "wait"})
    await publish(durable, "k", {"a": 1})
    filled = await durable.post("/v1/index/flush", {"mode": "wait"})

    assert "index_seq" not in empty.json()
    assert filled.json()["index_seq"] > 0


async def test_an_index_that_was_turned_off_can_not_be_flushed(durable: Wire) -> None:
    await publish(durable, "k", {"a": 1})
    await durable.post("/v1/namespace", {"query": {"preferred_engine": "scan"}})

    assert refusal(await durable.post("/v1/index/flush")) == (501, "index_unavailable")
    assert await keys(durable, eq("/a", 1)) == ["k"]


async def test_documents_carry_what_is_said_about_the_index_in_headers(durable: Wire) -> None:
    await publish_orders(durable)

    answer = await durable.post(
        "/v1/query", {"selector": {"exists": "/n"}, "limit": 2, "return": "documents"}
    )

    assert [row["key"] for row in rows(answer)] == ["orders/1", "orders/2"]
    assert answer.headers["x-lockd-query-cursor"] == "indexv1:b3JkZXJzLzI"
    assert int(answer.headers["x-lockd-query-index-seq"]) > 0
    assert json.loads(answer.headers["x-lockd-query-metadata"])["index_pending"] == "false"


@pytest.mark.parametrize("durable", ["lane", pytest.param("split", marks=pytest.mark.long)], indirect=True)
async def test_documents_carry_the_same_in_trailers_with_counters(durable: Wire) -> None:
    await publish_orders(durable)
    body = b'{"selector":{"range":{"field":"/n","gte":3}},"limit":1,"return":"documents"}'

    answer = await durable.talk(
        b"POST /v1/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )

    head, _, rest = answer.partition(b"\r\n\r\n")
    trailers = dict(line.split(": ", 1) for line in rest.decode().split("\r\n0\r\n")[1].split("\r\n") if line)
    assert b"\r\ntrailer: x-lockd-query-cursor, x-lockd-query-index-seq, x-lockd-query-metadata\r\n" in head
    assert trailers["x-lockd-query-cursor"] == "indexv1:b3JkZXJzLzE"
    assert int(trailers["x-lockd-query-index-seq"]) > 0
    assert json.loads(trailers["x-lockd-query-metadata"]) | {"index_updated_at": ""} == {
        "index_pending": "false",
        "index_updated_at": "",
        "query_candidates_seen": "1",
        "query_candidates_matched": "1",
        "query_bytes_captured": "73",
        "query_spill_count": "0",
        "query_spill_bytes": "0",
    }
