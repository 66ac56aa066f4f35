"""The bytes of a watch answer on the socket: clients parse each HTTP chunk as one JSON text, and take the head for "it is on"."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.wire.etcd.conftest import ANSWER_S_MAX, EtcdWire, listener_plane, one_plane

CREATE = b'{"create_request":{"key":"Y2s="}}'
HEADERS = {
    "access-control-allow-headers": "accept, content-type, authorization",
    "access-control-allow-methods": "POST, GET, OPTIONS, PUT, DELETE",
    "access-control-allow-origin": "*",
    "content-type": "application/json",
    "transfer-encoding": "chunked",
}
"""As recorded, but for the name of the proxy that the original has before it."""


@pytest.fixture(scope="module", params=["main", "listener"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[EtcdWire]:
    async with one_plane() if request.param == "main" else listener_plane() as plane:
        yield plane


async def test_each_message_is_one_chunk_with_its_line_feed(wire: EtcdWire) -> None:
    async with wire.stream(CREATE) as stream:
        await stream.head()
        chunks = [await stream.chunk()]
        for value in ("MQ==", "Mg=="):
            await wire.post("/v3/kv/put", key="Y2s=", value=value)
            chunks.append(await stream.chunk())

    assert stream.status == 200
    assert HEADERS.items() <= stream.headers.items()
    assert "content-length" not in stream.headers
    assert "content-encoding" not in stream.headers
    assert [(chunk[-1:], chunk.count(b"\n")) for chunk in chunks] == [(b"\n", 1)] * 3
    created, *told = [json.loads(chunk)["result"] for chunk in chunks]
    assert list(created) == ["header", "created"]
    assert [[event["kv"]["value"] for event in result["events"]] for result in told] == [["MQ=="], ["Mg=="]]


async def test_a_chunk_is_as_long_as_it_says_in_hexadecimal_digits(wire: EtcdWire) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.ports[0])
    writer.write(
        b"POST /v3/watch HTTP/1.1\r\nHost: plane\r\nContent-Length: %d\r\n\r\n%b" % (len(CREATE), CREATE)
    )
    async with asyncio.timeout(ANSWER_S_MAX):
        head = await reader.readuntil(b"\r\n\r\n")
        size, line = await reader.readline(), await reader.readline()
        rest = await reader.readexactly(2)
    writer.close()

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert size == b"%x\r\n" % len(line)
    assert line.startswith(b'{"result":{"header":{"cluster_id":"')
    assert line.endswith(b',"created":true}}\n')
    assert rest == b"\r\n"


async def test_what_is_put_after_the_head_came_is_seen(wire: EtcdWire) -> None:
    """Of many watches, each on a connection of its own, that begin while others write."""
    for number in range(20):
        async with wire.stream(CREATE) as stream:
            await stream.head()
            put = await wire.post("/v3/kv/put", key="Y2s=", value="MQ==")
            await stream.message()

            (event,) = await stream.events(1)

            assert event["kv"]["mod_revision"] == put["header"]["revision"], number


async def test_unary_answers_let_pages_of_other_origins_read_them(wire: EtcdWire) -> None:
    reply = await wire.call("POST", "/v3/kv/range", b'{"key":"Y2s="}')
    refused = await wire.call("POST", "/v3/kv/range", b'{"key":""}')
    asked = await wire.call("OPTIONS", "/v3/kv/range")

    expected = {name: value for name, value in HEADERS.items() if name.startswith("access-control")}
    for answer in (reply, refused, asked):
        assert expected.items() <= answer.headers.items(), answer
    assert (reply.status, refused.status) == (200, 400)
    assert reply.headers["content-length"] == str(len(reply.body))
    assert asked.status in (200, 204)


async def test_an_answer_to_a_keepalive_is_one_message_and_ends(wire: EtcdWire) -> None:
    await wire.post("/v3/lease/grant", TTL=60, ID=4711)

    first, last = [await wire.call("POST", "/v3/lease/keepalive", b'{"ID":"4711"}') for _ in range(2)]

    for reply in (first, last):
        assert reply.headers["content-type"] == "application/json"
        assert reply.body.count(b"\n") <= 1
        assert reply.members["result"]["TTL"] == "60"
    await wire.post("/v3/lease/revoke", ID=4711)


async def test_several_messages_of_one_body_are_taken_in_order(wire: EtcdWire) -> None:
    """Here a progress request behind the one that creates the watch."""
    async with wire.stream(CREATE + b'\n{"progress_request":{}}') as stream:
        await stream.head()

        created, progress = await stream.message(), await stream.message()

    assert created["created"] is True
    assert "events" not in progress
    assert int(progress["header"]["revision"]) >= int(created["header"]["revision"])
