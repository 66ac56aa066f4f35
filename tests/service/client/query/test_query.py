"""Queries through both twins, against a fake plane: what is sent, how pages follow, what is refused."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.client import (
    AsyncClient,
    CasMismatch,
    Client,
    InvalidArgument,
    NamespaceConfig,
    RequestRefused,
    Throttled,
    TransportFailed,
    UnexpectedAnswer,
)
from holdfast.client.query.search import Search
from tests.infra.fake_plane import FakePlane, Reply, reply
from tests.infra.player import Player, answer

QUERY = "/v1/query"
DOCUMENTS = {"X-Lockd-Query-Return": "documents", "Content-Type": "application/x-ndjson"}


def rows(*keys: str, cursor: str = "", **headers: str) -> Reply:
    lines = [f'{{"ns":"default","key":"{key}","ver":3,"doc":{{"n":1.50}}}}\n' for key in keys]
    more = {"X-Lockd-Query-Cursor": cursor} if cursor else {}
    return Reply(200, "".join(lines).encode(), {**DOCUMENTS, **more, **headers})


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as connected:
        yield connected


async def everything(url: str, **asked: Any) -> list[Any]:
    """What both twins give, which must be the same."""
    async with AsyncClient(url) as client:
        return [item async for item in client.query("/a=1", **asked)]


def test_keys_of_all_pages_are_given_in_order(plane: FakePlane, client: Client) -> None:
    plane.then(
        QUERY,
        reply(200, namespace="default", keys=["a", "b"], cursor="c1", index_seq=4),
        reply(200, namespace="default", cursor="c2"),
        reply(200, namespace="default", keys=["c"], index_seq=5, metadata={"index_pending": "false"}),
    )

    found = client.query('/status="open",/n>=10', limit=2, engine="index", refresh="wait_for")
    keys = list(found)

    assert keys == ["a", "b", "c"]
    assert (found.mode, found.cursor, found.index_seq) == ("keys", "", 5)
    assert found.metadata == {"index_pending": "false"}
    sent = plane.at(QUERY)
    assert [request.members().get("cursor") for request in sent] == [None, "c1", "c2"]
    assert sent[0].query == {"namespace": "default", "engine": "index", "refresh": "wait_for"}
    assert sent[0].members() == {
        "namespace": "default",
        "selector": {
            "and": [
                {"eq": {"field": "/status", "value": "open"}},
                {"range": {"field": "/n", "gte": 10}},
            ]
        },
        "limit": 2,
    }


def test_documents_of_all_pages_are_given_in_order(plane: FakePlane, client: Client) -> None:
    metadata = {"X-Lockd-Query-Index-Seq": "9", "X-Lockd-Query-Metadata": '{"index_pending":"false"}'}
    plane.then(QUERY, rows("a", "b", cursor="c1"), rows("c", **metadata))

    found = client.query({"exists": "/n"}, documents=True, namespace="other")
    read = list(found)

    assert [(row.key, row.version, row.content) for row in read] == [
        (key, 3, b'{"n":1.50}') for key in ("a", "b", "c")
    ]
    assert (found.mode, found.index_seq, found.metadata) == ("documents", 9, {"index_pending": "false"})
    assert plane.at(QUERY)[0].query == {"namespace": "other", "return": "documents"}
    assert plane.at(QUERY)[1].members() == {
        "namespace": "other",
        "selector": {"exists": "/n"},
        "cursor": "c1",
        "return": "documents",
    }


async def test_the_asynchronous_twin_gives_the_same(plane: FakePlane, url: str) -> None:
    plane.then(QUERY, reply(200, keys=["a"], cursor="c1"), reply(200, keys=["b"]))
    plane.then(QUERY, rows("a", cursor="c1"), rows("b"))

    keys = await everything(url)
    documents = await everything(url, documents=True)

    assert keys == ["a", "b"]
    assert [row.key for row in documents] == ["a", "b"]


def test_one_page_says_where_to_go_on(plane: FakePlane, client: Client) -> None:
    plane.then(QUERY, reply(200, keys=["b"], cursor="c2"))

    found = client.query("", cursor="c1", all_pages=False)

    assert (list(found), found.cursor) == (["b"], "c2")
    assert plane.at(QUERY)[0].members() == {"namespace": "default", "selector": {}, "cursor": "c1"}


def test_a_page_that_was_left_early_comes_again(plane: FakePlane, client: Client) -> None:
    plane.then(QUERY, rows("a", cursor="c1"), rows("b", "c"))

    with client.query("", documents=True) as found:
        first = [row.key for row, _ in zip(found, range(2), strict=False)]

    assert first == ["a", "b"]
    assert found.cursor == "c1"


async def test_an_asynchronous_query_that_was_left_early_hangs_up(plane: FakePlane, url: str) -> None:
    plane.then(QUERY, rows("a", "b"), rows("c"))
    async with AsyncClient(url) as client:
        async with client.query("", documents=True) as found:
            async for row in found:
                assert row.key == "a"
                break
        again = [row.key async for row in client.query("", documents=True)]

    assert again == ["c"]


def test_a_busy_server_is_asked_again(plane: FakePlane, client: Client) -> None:
    busy = reply(429, {"Retry-After": "0.01"}, error="throttled")
    plane.then(QUERY, busy, busy, reply(200, keys=["a"]))

    assert list(client.query("")) == ["a"]


def test_a_server_that_stays_busy_ends_the_query() -> None:
    player = Player([answer(429, {"retry-after": "3"}, error="throttled") for _ in range(6)])
    search = Search.of("", namespace="default", documents=False, limit=None)

    with pytest.raises(Throttled):
        player.play(search.page(player.channel, ""))
    assert len(player.sent) == 6
    assert all(3 <= pause_s <= 5.1 for pause_s in player.pauses_s)


@pytest.mark.parametrize("selector", ["/a", "status=open", '/a="x', "eq{}"])
def test_a_wrong_selector_is_refused_before_anything_is_sent(
    plane: FakePlane, client: Client, selector: str
) -> None:
    with pytest.raises(InvalidArgument, match="invalid_selector"):
        client.query(selector)
    assert plane.seen == []


def test_a_page_size_below_one_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        client.query("", limit=0)


def test_what_the_server_refuses_is_told(plane: FakePlane, client: Client) -> None:
    plane.then(QUERY, reply(400, error="invalid_cursor", detail="no cursor of this query"))

    with pytest.raises(RequestRefused) as refused:
        list(client.query("", cursor="x", documents=True))
    assert refused.value.code == "invalid_cursor"


@pytest.mark.parametrize(
    "answers",
    [
        [reply(200, keys=[1])],
        [reply(200, keys="a")],
        [reply(200, keys=["a"], cursor="c"), reply(200, keys=["a"], cursor="c")],
        [rows("a")],
    ],
    ids=["no text", "no list", "the same cursor twice", "documents where keys were asked for"],
)
def test_a_broken_page_of_keys_is_refused(plane: FakePlane, client: Client, answers: list[Reply]) -> None:
    plane.then(QUERY, *answers)

    with pytest.raises(UnexpectedAnswer):
        list(client.query(""))


@pytest.mark.parametrize(
    "page",
    [
        reply(200, keys=["a"]),
        rows("a", **{"X-Lockd-Query-Metadata": "no JSON"}),
        rows("a", **{"X-Lockd-Query-Metadata": "[]"}),
        Reply(200, b"<html>\n", DOCUMENTS),
    ],
    ids=["keys where documents were asked for", "metadata", "metadata that are a list", "no rows"],
)
def test_a_broken_page_of_documents_is_refused(plane: FakePlane, client: Client, page: Reply) -> None:
    plane.then(QUERY, page)

    with pytest.raises(UnexpectedAnswer):
        list(client.query("", documents=True))


def serve_raw(*answers: bytes) -> str:
    """A server that gives these bytes, each to one request of one connection, and then hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    content = b""
                    while not content.endswith(b"}"):
                        content += connection.recv(65536)
                    connection.sendall(answer)

    threading.Thread(target=run, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


ROW = b'{"ns":"default","key":"a","doc":{}}\n'
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
    b"Trailer: X-Lockd-Query-Cursor, X-Lockd-Query-Index-Seq\r\n\r\n%x\r\n%s\r\n" % (len(ROW), ROW)
)
FIRST = CHUNKED + b"0\r\nX-Lockd-Query-Cursor: c1\r\nX-Lockd-Query-Index-Seq: 3\r\n\r\n"
LAST = CHUNKED + b"0\r\nX-Lockd-Query-Index-Seq: 4\r\n\r\n"


def test_a_cursor_after_the_rows_is_followed() -> None:
    with Client(serve_raw(FIRST, LAST)) as client:
        found = client.query("", documents=True)
        keys = [row.key for row in found]

    assert (keys, found.cursor, found.index_seq) == (["a", "a"], "", 4)


async def test_a_cursor_after_the_rows_is_followed_by_the_asynchronous_twin() -> None:
    async with AsyncClient(serve_raw(FIRST, LAST)) as client:
        found = client.query("", documents=True)
        keys = [row.key async for row in found]

    assert (keys, found.cursor, found.index_seq) == (["a", "a"], "", 4)


def test_a_page_that_breaks_off_is_an_error_and_loses_no_row() -> None:
    with Client(serve_raw(FIRST, CHUNKED)) as client:
        found = client.query("", documents=True)
        with pytest.raises(TransportFailed):
            list(found)

    assert found.cursor == "c1"


def test_a_flush_waits_or_not(plane: FakePlane, client: Client) -> None:
    plane.then(
        "/v1/index/flush",
        reply(202, namespace="default", mode="async", accepted=True, flushed=False, flush_id="f"),
        reply(200, namespace="n", mode="wait", accepted=True, flushed=True, pending=False, index_seq=1),
    )

    later = client.flush_index()
    done = client.flush_index("wait", namespace="n")

    assert (later.is_accepted, later.is_flushed, later.flush_id) == (True, False, "f")
    assert (done.is_flushed, done.index_seq) == (True, 1)
    assert [request.members()["mode"] for request in plane.at("/v1/index/flush")] == ["async", "wait"]


async def test_a_namespace_is_read_and_configured_by_both_twins(plane: FakePlane, url: str) -> None:
    engines = {"preferred_engine": "scan", "fallback_engine": "none"}
    config: dict[str, Any] = {"namespace": "n", "query": engines}
    conflict = reply(409, error="namespace_config_conflict")
    plane.then(
        "/v1/namespace",
        reply(200, **config),
        reply(200, {"ETag": "e1"}, **config),
        reply(200, **config),
        conflict,
    )

    with Client(url) as client:
        read = client.namespace_config(namespace="n")
        stored = client.set_namespace_config(namespace="n", preferred_engine="scan", if_match="e0")
    async with AsyncClient(url) as other:
        assert await other.namespace_config(namespace="n") == read
        with pytest.raises(CasMismatch):
            await other.set_namespace_config(fallback_engine="scan")

    assert read == NamespaceConfig("n", "scan", "none", "", config)
    assert stored.etag == "e1"
    get, put, _, other_put = plane.at("/v1/namespace")
    assert (get.method, get.query) == ("GET", {"namespace": "n"})
    assert put.members() == {"namespace": "n", "query": {"preferred_engine": "scan"}}
    assert (put.headers["if-match"], "if-match" in other_put.headers) == ("e0", False)
    assert json.loads(other_put.body)["query"] == {"fallback_engine": "scan"}
