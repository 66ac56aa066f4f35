"""Queries on the wire: keys and documents, pages, engines, and every row of the table of errors."""

import json
from typing import Any

import httpx
import pytest

from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.test_leases import refusal


@pytest.fixture(autouse=True)
async def scan_is_preferred(wire: Wire) -> None:
    """As in memory by default; over other stores the index is, and has tests of its own."""
    if (await wire.get("/v1/namespace")).json()["query"]["preferred_engine"] != "scan":
        await wire.post("/v1/namespace", {"query": {"preferred_engine": "scan"}})


async def publish(wire: Wire, key: str, document: Any, **headers: str) -> None:
    lease = await wire.acquire(key)
    await wire.update(lease, json.dumps(document).encode(), **headers)
    await wire.release(lease)


async def publish_orders(wire: Wire) -> None:
    """Two open ones, a closed one, and one that is not an object."""
    await publish(wire, "orders/2", {"status": "open", "n": 2})
    await publish(wire, "orders/1", {"status": "open", "n": 10})
    await publish(wire, "orders/3", {"status": "closed", "n": 3})
    await publish(wire, "list", [1, 2])


def eq(field: str, value: Any) -> dict[str, Any]:
    return {"eq": {"field": field, "value": value}}


async def keys(wire: Wire, selector: Any = None, **query: object) -> list[str]:
    answer = await wire.post("/v1/query", {"selector": selector or {}}, None, **query)
    assert answer.status_code == 200, answer.text
    found: list[str] = answer.json().get("keys", [])
    return found


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


# -- keys


async def test_matching_keys_come_in_the_order_of_their_bytes(wire: Wire) -> None:
    await publish_orders(wire)

    answer = await wire.post("/v1/query", {"selector": eq("/status", "open")})

    assert answer.status_code == 200
    assert answer.text == '{"namespace":"default","keys":["orders/1","orders/2"]}\n'
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-lockd-query-return"] == "keys"
    assert "x-lockd-query-cursor" not in answer.headers


async def test_without_a_hit_only_the_namespace_is_told(wire: Wire) -> None:
    answer = await wire.post("/v1/query", {"namespace": "NoSuch"})

    assert answer.text == '{"namespace":"nosuch"}\n'


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({}, ["list", "orders/1", "orders/2", "orders/3"]),
        ({"foo": 1}, ["list", "orders/1", "orders/2", "orders/3"]),
        ({"or": [{}]}, ["list", "orders/1", "orders/2", "orders/3"]),
        ({"not": {}}, []),
        (eq("/", ""), []),
        ({"NOT": {"EQ": {"Field": "/status", "VALUE": "open"}}}, ["orders/3"]),
        ({"range": {"field": "/n", "gte": 3}}, ["orders/1", "orders/3"]),
        ({"exists": "/n", "eq": {"field": "/n", "value": 10}}, ["orders/1"]),
        ({"and": [{"or": [eq("/n", 2), eq("/n", 3)]}, eq("/status", "open")]}, ["orders/2"]),
    ],
)
async def test_selectors_in_the_body(wire: Wire, selector: dict[str, Any], found: list[str]) -> None:
    await publish_orders(wire)

    assert await keys(wire, selector) == found


@pytest.mark.parametrize(
    "query",
    [
        "eq.field=/status&eq.value=open",
        "eq%7Bfield%3D/status,value%3Dopen%7D=",
        "selector=%7B%22eq%22%3A%7B%22field%22%3A%22/status%22%2C%22value%22%3A%22open%22%7D%7D",
    ],
)
async def test_selectors_in_the_url(wire: Wire, query: str) -> None:
    await publish_orders(wire)

    by_get = await wire.request("GET", f"/v1/query?{query}")
    by_post = await wire.request("POST", f"/v1/query?{query}")

    assert by_get.json()["keys"] == by_post.json()["keys"] == ["orders/1", "orders/2"]


async def test_the_url_wins_over_the_body(wire: Wire) -> None:
    await publish_orders(wire)
    body = {"selector": eq("/status", "open"), "limit": 1, "namespace": "other", "return": "documents"}

    answer = await wire.post(
        "/v1/query",
        body,
        None,
        **{"selector": '{"exists":"/n"}', "limit": 3, "namespace": "default", "return": "KEYS"},
    )

    assert answer.json() == {"namespace": "default", "keys": ["orders/1", "orders/2", "orders/3"]}


async def test_a_limit_that_is_no_number_is_passed_over_and_a_large_one_cut(wire: Wire) -> None:
    await publish_orders(wire)

    assert len(await keys(wire, limit="many")) == 4
    assert len(await keys(wire, limit=10**9)) == 4
    assert len(await keys(wire, limit=-1)) == 4


async def test_a_query_that_names_no_limit_is_answered_with_a_hundred_hits(wire: Wire) -> None:
    for number in range(101):
        await publish(wire, f"k{number:03}", {})

    answer = (await wire.post("/v1/query", {})).json()

    assert answer["keys"] == [f"k{number:03}" for number in range(100)]
    assert answer["cursor"]


async def test_pages_follow_each_other_without_a_hole(wire: Wire) -> None:
    for number in range(6):
        await publish(wire, f"k{number}", {})
    found: list[str] = []
    cursor = ""
    page_count = 0

    while page_count == 0 or cursor:
        answer = (await wire.post("/v1/query", {"limit": 5, "cursor": cursor})).json()
        found += answer.get("keys", [])
        cursor = answer.get("cursor", "")
        page_count += 1

    assert found == [f"k{number}" for number in range(6)]
    assert page_count == 2


async def test_a_full_last_page_has_no_cursor(wire: Wire) -> None:
    for number in range(5):
        await publish(wire, f"k{number}", {})

    answer = await wire.post("/v1/query", {"limit": 5})

    assert "cursor" not in answer.json()


async def test_the_cursor_goes_on_after_a_key_that_is_gone(wire: Wire) -> None:
    for name in ("a", "b", "c"):
        await publish(wire, name, {})
    cursor = (await wire.post("/v1/query", {"limit": 2})).headers["x-lockd-query-cursor"]
    lease = await wire.acquire("b")
    await wire.post("/v1/remove", None, lease.headers, key="b")
    await wire.release(lease)

    assert await keys(wire, cursor=cursor) == ["c"]
    assert cursor == "scanv1:Yg"


# -- what is queryable


async def test_only_what_is_published_shows(wire: Wire) -> None:
    lease = await wire.acquire("k")
    await wire.update(lease, b'{"a":1}')
    before = await keys(wire)
    await wire.release(lease, rollback=True)
    rolled_back = await keys(wire)
    await publish(wire, "k", {"a": 1})
    lease = await wire.acquire("k")
    await wire.update(lease, b'{"a":2}')
    meanwhile = await keys(wire, eq("/a", 1)), await keys(wire, eq("/a", 2))
    await wire.release(lease)
    afterwards = await keys(wire, eq("/a", 1)), await keys(wire, eq("/a", 2))

    assert (before, rolled_back) == ([], [])
    assert meanwhile == (["k"], [])
    assert afterwards == ([], ["k"])


async def test_hidden_keys_and_diagnostics_never_show(wire: Wire) -> None:
    await publish(wire, "shown", {})
    await publish(wire, "hidden", {}, X_Lockd_Meta_Query_Hidden="true")
    await publish(wire, "lockd-diagnostics/probe", {})
    before = await keys(wire)
    lease = await wire.acquire("hidden")
    await wire.post("/v1/metadata", {"query_hidden": False}, lease.headers, key="hidden")
    meanwhile = await keys(wire)
    await wire.release(lease)

    assert before == meanwhile == ["shown"]
    assert await keys(wire) == ["hidden", "shown"]


# -- documents


async def test_documents_come_as_lines_in_the_order_of_keys(wire: Wire) -> None:
    await publish_orders(wire)

    answer = await wire.post(
        "/v1/query", {"selector": {"exists": "/n"}, "limit": 2}, None, **{"return": "documents"}
    )

    assert answer.text == (
        '{"ns":"default","key":"orders/1","ver":1,"doc":{"status":"open","n":10}}\n'
        '{"ns":"default","key":"orders/2","ver":1,"doc":{"status":"open","n":2}}\n'
    )
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.headers["x-lockd-query-return"] == "documents"
    assert answer.headers["x-lockd-query-cursor"] == "scanv1:b3JkZXJzLzI"


async def test_no_document_is_an_empty_body(wire: Wire) -> None:
    answer = await wire.post("/v1/query", {"return": "Docs"})

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["x-lockd-query-return"] == "documents"


async def test_large_documents_match_and_stream(wire: Wire) -> None:
    sizes = {"small": 10, "thread": 200_000, "process": 1_500_000}
    for key, size in sizes.items():
        await publish(wire, key, {"kind": "large", "text": "x" * size})
    await publish(wire, "other", {"kind": "none", "text": "x" * 1_500_000})

    answer = await wire.post("/v1/query", {"selector": eq("/kind", "large"), "return": "documents"})

    assert {row["key"]: len(row["doc"]["text"]) for row in rows(answer)} == sizes


# -- refusals


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        (b"{", {}, "invalid_body"),
        (b"[]", {}, "invalid_body"),
        (b'{"limit":"5"}', {}, "invalid_body"),
        (b'{"limit":1.5}', {}, "invalid_body"),
        (b'{"namespace":5}', {}, "invalid_body"),
        (b'{"fields":[]}', {}, "invalid_body"),
        (b'{"selector":[]}', {}, "invalid_body"),
        (b'{"selector":{"eq":{"value":"x"}}}', {}, "invalid_body"),
        (b'{"selector":{"in":{"field":"/a","any":[1]}}}', {}, "invalid_body"),
        (b'{"selector":' + b'{"not":' * 500 + b"{}" + b"}" * 500 + b"}", {}, "invalid_body"),
        (b'{"return":"rows"}', {}, "invalid_return"),
        (b'{"return":"rows","selector":{"eq":{"value":"x"}}}', {}, "invalid_body"),
        (b'{"return":"rows","selector":{"exists":"a"}}', {}, "invalid_return"),
        (b'{"selector":{"exists":"a"}}', {}, "invalid_selector"),
        (b"{}", {"selector": "/a=1"}, "invalid_selector"),
        (b"{}", {"selector": '{"eq":{"value":"x"}}'}, "invalid_selector"),
        (b"{}", {"eq.field": "a"}, "invalid_selector"),
        (b"{}", {"eq.value": "a"}, "invalid_selector"),
        (b"{}", {"namespace": ".x"}, "invalid_namespace"),
        (b'{"namespace":"a b"}', {}, "invalid_namespace"),
        (b"{}", {"fields": "{"}, "invalid_fields"),
        (b"{}", {"fields": "[]", "engine": "fast"}, "invalid_fields"),
        (b"{}", {"engine": "fast", "return": "rows"}, "invalid_engine"),
        (b"{}", {"return": "rows", "refresh": "now"}, "invalid_return"),
        (b"{}", {"refresh": "now", "engine": "index"}, "invalid_refresh"),
        (b"{}", {"engine": "index", "cursor": "x"}, "query_engine_unavailable"),
        (b"{}", {"cursor": "x"}, "invalid_cursor"),
        (b"{}", {"cursor": "indexv1:YQ"}, "invalid_cursor"),
        (b"{}", {"cursor": "scanv1:"}, "invalid_cursor"),
        (b"{}", {"cursor": "scanv1:!!"}, "invalid_cursor"),
        (b"{}", {"cursor": "scanv1:_w"}, "invalid_cursor"),
        (b'{"cursor":"scanv1:Y"}', {}, "invalid_cursor"),
        (b"{}", {"cursor": "scanv1:" + "A" * 5000}, "invalid_cursor"),
    ],
)
async def test_bad_queries_are_refused(wire: Wire, body: bytes, query: dict[str, str], code: str) -> None:
    answer = await wire.post("/v1/query", body, None, **query)

    assert refusal(answer) == (400, code)


async def test_a_body_above_its_limit_is_refused(wire: Wire) -> None:
    answer = await wire.post("/v1/query", b'{"cursor":"' + b"x" * 300_000 + b'"}')

    assert refusal(answer) == (400, "invalid_body")


@pytest.mark.parametrize("refresh", ["wait_for", "wait-for"])
async def test_waiting_for_the_index_changes_nothing(wire: Wire, refresh: str) -> None:
    await publish(wire, "k", {})

    assert await keys(wire, refresh=refresh) == ["k"]
