"""Namespace configuration and the flush of the index on the wire, with every row of their tables of errors."""

import re

import pytest

from tests.wire.lockd.conftest import LASTING, Wire
from tests.wire.lockd.test_leases import refusal
from tests.wire.lockd.test_query import keys, publish

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture
def preferred(request: pytest.FixtureRequest) -> str:
    """The default: in memory a scan, in a store that lasts the index."""
    return "index" if re.search("|".join(LASTING), request.node.name) else "scan"


def engines(preferred: str, fallback: str) -> dict[str, object]:
    return {"query": {"preferred_engine": preferred, "fallback_engine": fallback}}


# -- configuration


async def test_a_namespace_that_was_never_used_has_defaults_and_no_etag(wire: Wire, preferred: str) -> None:
    answer = await wire.get("/v1/namespace", namespace="Fresh")

    assert answer.status_code == 200
    assert answer.text == (
        f'{{"namespace":"fresh","query":{{"preferred_engine":"{preferred}","fallback_engine":"none"}}}}\n'
    )
    assert "etag" not in answer.headers


async def test_what_is_stored_is_read_back_with_its_etag(wire: Wire, preferred: str) -> None:
    stored = await wire.post("/v1/namespace", engines("INDEX", "Scan"), namespace="ns")
    read = await wire.get("/v1/namespace", namespace="ns")
    other = await wire.get("/v1/namespace")

    assert stored.status_code == 200
    assert stored.json() == {"namespace": "ns", **engines("index", "scan")}
    assert read.content == stored.content
    assert read.headers["etag"] == stored.headers["etag"]
    assert UUID7.fullmatch(stored.headers["etag"])
    assert other.json() == {"namespace": "default", **engines(preferred, "none")}


async def test_what_is_left_out_keeps_its_value_and_each_store_has_its_etag(
    wire: Wire, preferred: str
) -> None:
    first = await wire.post("/v1/namespace", {"query": {"fallback_engine": "scan"}})
    second = await wire.post("/v1/namespace", {"query": {"preferred_engine": "index", "fallback_engine": ""}})
    third = await wire.post("/v1/namespace", {"query": {}})

    assert first.json()["query"] == {"preferred_engine": preferred, "fallback_engine": "scan"}
    assert second.json()["query"] == {"preferred_engine": "index", "fallback_engine": "scan"}
    assert third.json() == second.json()
    assert len({answer.headers["etag"] for answer in (first, second, third)}) == 3


async def test_the_namespace_of_the_body_wins_over_that_of_the_url(wire: Wire) -> None:
    answer = await wire.post("/v1/namespace", {"namespace": "A", "query": {}}, namespace="b")
    by_url = await wire.post("/v1/namespace", {"namespace": "", "query": {}}, namespace="b")

    assert answer.json()["namespace"] == "a"
    assert by_url.json()["namespace"] == "b"


async def test_a_conditional_store_loses_to_the_one_before(wire: Wire) -> None:
    first = await wire.post("/v1/namespace", {"query": {}})
    etag = first.headers["etag"]

    second = await wire.post("/v1/namespace", {"query": {}}, {"If-Match": f'"{etag}"'})
    third = await wire.post("/v1/namespace", {"query": {}}, {"If-Match": etag})

    assert second.status_code == 200
    assert refusal(third) == (409, "namespace_config_conflict")


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        (b"", {}, "invalid_body"),
        (b"{", {}, "invalid_body"),
        (b"[]", {}, "invalid_body"),
        (b'{"query":{"preferred_engine":5}}', {}, "invalid_body"),
        (b'{"query":{},"pad":"' + b"x" * 40_000 + b'"}', {}, "invalid_body"),
        (b"{}", {}, "invalid_namespace_request"),
        (b'{"query":null}', {}, "invalid_namespace_request"),
        (b'{"query":{"preferred_engine":"none"}}', {}, "invalid_namespace_request"),
        (b'{"query":{"fallback_engine":"index"}}', {}, "invalid_namespace_request"),
        (b'{"query":{"preferred_engine":"fast"}}', {}, "invalid_namespace_request"),
        (b'{"query":{}}', {"namespace": ".ours"}, "invalid_namespace"),
    ],
)
async def test_bad_configurations_are_refused(
    wire: Wire, body: bytes, query: dict[str, str], code: str
) -> None:
    assert refusal(await wire.post("/v1/namespace", body, None, **query)) == (400, code)


async def test_reading_refuses_a_bad_namespace_and_other_methods_are_none(wire: Wire) -> None:
    bad = await wire.get("/v1/namespace", namespace="a b")
    deleted = await wire.request("DELETE", "/v1/namespace")

    assert refusal(bad) == (400, "invalid_namespace")
    assert refusal(deleted) == (405, "method_not_allowed")
    assert sorted(deleted.headers["allow"].split(", ")) == ["GET", "POST"]


async def test_engines_are_available_as_the_namespace_is_configured(wire: Wire) -> None:
    await publish(wire, "k", {"a": 1})
    results: dict[str, list[int]] = {}

    for preferred, fallback in (("scan", "none"), ("scan", "scan"), ("index", "none"), ("index", "scan")):
        await wire.post("/v1/namespace", engines(preferred, fallback))
        results[f"{preferred}/{fallback}"] = [
            (await wire.post("/v1/query", {}, engine=engine)).status_code
            for engine in ("", "auto", "index", "scan")
        ]

    assert results == {
        "scan/none": [200, 200, 400, 200],
        "scan/scan": [200, 200, 400, 200],
        "index/none": [200, 200, 200, 400],
        "index/scan": [200, 200, 200, 200],
    }


# -- flush


async def test_a_flush_has_nothing_to_wait_for(wire: Wire) -> None:
    await publish(wire, "k", {})

    answer = await wire.post("/v1/index/flush", {"mode": "WAIT"})

    assert answer.status_code == 200
    assert answer.json() == {
        "namespace": "default",
        "mode": "wait",
        "accepted": True,
        "flushed": True,
        "pending": False,
    }
    assert await keys(wire) == ["k"]


async def test_an_empty_flush_waits_and_sync_is_another_word_for_it(wire: Wire) -> None:
    assert (await wire.post("/v1/index/flush")).json()["mode"] == "wait"
    assert (await wire.post("/v1/index/flush", {"mode": "async"}, mode="sync")).json()["mode"] == "wait"


async def test_an_asynchronous_flush_is_accepted_with_an_id(wire: Wire) -> None:
    answer = await wire.post("/v1/index/flush", {"namespace": "NS", "mode": "async"})

    members = answer.json()
    assert answer.status_code == 202
    assert UUID7.fullmatch(members.pop("flush_id"))
    assert members == {
        "namespace": "ns",
        "mode": "async",
        "accepted": True,
        "flushed": False,
        "pending": False,
    }


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        (b"{", {}, "invalid_body"),
        (b'{"mode":1}', {}, "invalid_body"),
        (b'{"other":1}', {}, "invalid_body"),
        (b'{"mode":"' + b"x" * 9000 + b'"}', {}, "invalid_body"),
        (b'{"mode":"later"}', {}, "invalid_mode"),
        (b"{}", {"mode": "later"}, "invalid_mode"),
        (b"{}", {"namespace": ".x"}, "invalid_namespace"),
    ],
)
async def test_bad_flushes_are_refused(wire: Wire, body: bytes, query: dict[str, str], code: str) -> None:
    assert refusal(await wire.post("/v1/index/flush", body, None, **query)) == (400, code)


async def test_a_flush_by_another_method_is_refused(wire: Wire) -> None:
    assert refusal(await wire.get("/v1/index/flush")) == (405, "method_not_allowed")
