"""Streams byte by byte: wherever a body is cut the answer is the same, and nothing runs ahead of the client."""

import asyncio

import pytest

from holdfast.common.express.limits import Limits
from tests.service.common.sample import request, status_of
from tests.service.common.streams import Streams
from tests.unit.common.fake_connection import FakeConnection

BOTH_WAYS = pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
ID = "X-Correlation-Id: test-1"
NARROW = Limits(inline_body_bytes=16)


async def _turns(count: int = 300) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _body(connection: FakeConnection, size_bytes: int) -> bytes:
    """What follows the head, once it is complete."""
    body = b""
    for _ in range(10_000):
        body = connection.transport.written.partition(b"\r\n\r\n")[2]
        if len(body) >= size_bytes:
            break
        await asyncio.sleep(0)
    return body


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_streamed_body_cut_at_any_byte_gets_the_same_answer(is_chunked: bool) -> None:
    body = b"0123456789abcdefghij" * 2
    asked = request("POST", "/v1/upload", body, ID)
    if is_chunked:
        head = request("POST", "/v1/upload", b"", ID, "Transfer-Encoding: chunked", has_length=False)
        asked = head + b"a\r\n0123456789\r\n1e\r\n" + body[10:] + b"\r\n0\r\n\r\n"
    connection = FakeConnection(Streams().app(), NARROW)
    await connection.feed(asked)
    expected = await connection.settle(1)
    assert b'{"streamed":40,' in expected

    for cut in range(1, len(asked)):
        connection.transport.written = b""
        await connection.feed(asked[:cut], asked[cut:])
        assert await connection.settle(1) == expected, cut


@BOTH_WAYS
async def test_a_producer_waits_for_a_client_that_takes_nothing(is_express: bool) -> None:
    streams = Streams()
    connection = FakeConnection(streams.app(), is_express=is_express)
    connection.protocol.pause_writing()
    await connection.feed(request("GET", "/v1/download?count=50&size=100"))
    await _turns()
    assert streams.produced <= 3

    connection.protocol.resume_writing()

    assert len(await _body(connection, 5000)) == 5000
    await asyncio.wait_for(streams.closed.wait(), 5)


@BOTH_WAYS
async def test_a_client_that_takes_nothing_for_too_long_is_dropped(is_express: bool) -> None:
    streams = Streams()
    limits = Limits(write_timeout_s=1, stream_write_timeout_s=60)
    connection = FakeConnection(streams.app(), limits, is_express=is_express)
    connection.protocol.pause_writing()
    await connection.feed(request("GET", "/v1/download?count=50&size=100"))
    await _turns()

    connection.tick(59)
    assert not connection.transport.is_aborted
    connection.tick(2)
    assert connection.transport.is_aborted
    connection.protocol.connection_lost(None)

    await asyncio.wait_for(streams.closed.wait(), 5)


async def test_a_long_stream_is_not_an_idle_connection() -> None:
    streams = Streams()
    connection = FakeConnection(streams.app(), Limits(keep_alive_timeout_s=5, stream_write_timeout_s=1e9))
    connection.protocol.pause_writing()
    await connection.feed(request("GET", "/v1/download?count=50&size=100"))
    await _turns()

    connection.tick(1000)

    assert not connection.transport.is_over


async def test_a_client_that_closed_its_sending_side_gets_the_stream_undisturbed() -> None:
    streams = Streams()
    connection = FakeConnection(streams.app())
    connection.protocol.pause_writing()
    await connection.feed(request("GET", "/v1/download?count=50&size=100", b"", ID))
    await _turns()

    assert connection.protocol.eof_received()
    connection.protocol.resume_writing()

    assert len(await _body(connection, 5000)) == 5000
    assert connection.transport.written.count(b"HTTP/1.1") == 1


async def test_the_last_stream_of_a_closing_server_ends_its_connection() -> None:
    streams = Streams()
    connection = FakeConnection(streams.app())
    connection.lane.begin_close()
    await connection.feed(request("GET", "/v1/download?count=2&size=100"))

    assert len(await _body(connection, 200)) == 200
    await _turns(10)

    assert b"\r\nconnection: close\r\n" in connection.transport.written
    assert connection.transport.is_over


async def test_a_defect_before_the_first_chunk_is_an_answer_of_its_own() -> None:
    streams = Streams()
    connection = FakeConnection(streams.app())
    await connection.feed(request("GET", "/v1/download?count=0&end=broken"))

    assert status_of(await connection.settle(1)) == 500
    assert streams.closed.is_set()
