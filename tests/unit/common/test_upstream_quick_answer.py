"""Answers that need no parser: whichever way they are read, the caller gets the same; all others go to the parser."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.common.upstream.port import RequestStream
from holdfast.common.upstream.quick_answer import quick_answer
from tests.unit.common.test_upstream_connection import Bench

HEAD = b"HTTP/1.1 200 OK\r\ndate: Mon, 16 Nov 2026 08:17:27 GMT\r\n"
REST = b"content-length: 5\r\nx-correlation-id: id-1\r\n\r\nhello"
PLAIN = {
    "json": HEAD + b"content-type: application/json\r\n" + REST,
    "no headers": HEAD + REST,
    "several": HEAD + b"etag: abc\r\nx-key-version: 7\r\nx-a: 1\r\nx-a: 2\r\n" + REST,
    "refusal": b"HTTP/1.1 409 Conflict\r\ndate: now\r\nretry-after: 5\r\n" + REST,
    "empty": HEAD + b"content-length: 0\r\nx-correlation-id: id-1\r\n\r\n",
}
OTHERS = {
    "no date": b"HTTP/1.1 200 OK\r\n" + REST,
    "too short": HEAD + REST[:-1],
    "too long": HEAD + REST + b"H",
    "last of its connection": HEAD + REST.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
    "connection first": HEAD + b"connection: close\r\n" + REST,
    "chunked": HEAD + b"transfer-encoding: chunked\r\n" + REST,
    "two lengths": HEAD + b"content-length: 5\r\n" + REST,
    "capitals": HEAD + b"Content-Length: 5\r\n" + REST,
    "draining": HEAD + b"shutdown-imminent: true\r\n" + REST,
    "id of a message": HEAD + b"x-correlation-id: other\r\n" + REST,
    "no content": b"HTTP/1.1 204 No Content\r\ndate: now\r\n" + REST,
    "informational": b"HTTP/1.1 100 Continue\r\ndate: now\r\n" + REST,
    "folded": HEAD + b"x-a: 1\r\n 2\r\n" + REST,
    "not ascii": HEAD + b"x-name: \xc3\xa4\r\n" + REST,
    "bare line feed": HEAD + b"x-a: 1\nx-b: 2\r\n" + REST,
    "http 1.0": HEAD.replace(b"1.1", b"1.0") + REST,
    "large head": HEAD + b"x-a: " + b"a" * 700 + b"\r\n" + REST,
}


async def _by_parser(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    bench = Bench()
    waiting = bench.begin()
    bench.connection.data_received(data[:1])  # In two pieces no answer is a quick one.
    bench.connection.data_received(data[1:])
    answer = await waiting
    return answer.status, answer.headers, answer.body


@pytest.mark.parametrize("name", PLAIN)
async def test_a_plain_answer_is_what_the_parser_makes_of_it(name: str) -> None:
    answer = quick_answer(PLAIN[name])

    assert answer is not None
    assert (answer.status, answer.headers, answer.body) == await _by_parser(PLAIN[name])


@pytest.mark.parametrize("name", OTHERS)
async def test_every_other_answer_is_left_to_the_parser(name: str) -> None:
    assert quick_answer(OTHERS[name]) is None


async def test_quick_and_parsed_answers_alternate_on_one_connection() -> None:
    bench = Bench()
    for data in [PLAIN["json"], *(PLAIN[name] for name in PLAIN)] * 2:
        waiting = bench.begin()
        bench.connection.data_received(data)
        assert (await waiting).header_lines is not None
        waiting = bench.begin()
        bench.connection.data_received(data[:20])
        bench.connection.data_received(data[20:])
        assert (await waiting).header_lines is None

    assert bench.connection.is_usable


async def test_a_quick_answer_before_the_end_of_the_body_ends_the_connection() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    bench = Bench()
    waiting = bench.begin(RequestStream(endless()))
    await asyncio.sleep(0)
    bench.connection.data_received(PLAIN["refusal"])

    assert (await waiting).status == 409
    assert bench.transport.is_over
    assert bench.keeper.released == 0
