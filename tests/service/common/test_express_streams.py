"""Bodies and answers that stream: equal bytes by the lane and by plain ASGI, bounded memory, clients that leave."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from tests.service.common.sample import masked, read_answer, request, serving, status_of
from tests.service.common.streams import UPLOAD_LIMIT_BYTES, Streams

BOTH_WAYS = pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
ID = "X-Correlation-Id: test-1"
CLOSE = "Connection: close"
CHUNKED = "Transfer-Encoding: chunked"


def get(query: str, method: str = "GET", version: str = "1.1") -> bytes:
    return request(method, f"/v1/download?{query}", b"", ID, CLOSE, version=version)


def post(path: str, body: bytes, *headers: str) -> bytes:
    return request("POST", path, body, ID, CLOSE, *headers)


def post_chunked(path: str, *chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])
    return request("POST", path, b"", ID, CLOSE, CHUNKED, has_length=False) + body


CONVERSATIONS = {
    "download": (200, get("")),
    "download_of_unknown_size": (200, get("unknown=1")),
    "download_of_nothing": (200, get("count=0")),
    "download_of_nothing_of_unknown_size": (200, get("count=0&unknown=1")),
    "download_of_much": (200, get("count=40&size=70000")),
    "download_of_much_of_unknown_size": (200, get("count=40&size=70000&unknown=1")),
    "download_refused_at_once": (409, get("count=0&end=held")),
    "download_broken_at_once": (500, get("count=0&end=broken")),
    "download_with_bad_header": (500, get("bad_header=1")),
    "download_with_a_status_without_body": (500, get("status=204")),
    "head": (200, get("", "HEAD")),
    "head_of_unknown_size": (200, get("unknown=1", "HEAD")),
    "head_refused": (409, get("count=0&end=held", "HEAD")),
    "http_1_0": (200, get("", version="1.0")),
    "http_1_0_of_unknown_size": (200, get("unknown=1", version="1.0")),
    "http_1_0_head": (200, get("unknown=1", "HEAD", version="1.0")),
    "upload_small": (200, post("/v1/upload", b"x" * 10)),
    "upload_empty": (200, post("/v1/upload", b"")),
    "upload_at_the_inline_limit": (200, post("/v1/upload", b"x" * 65_536)),
    "upload_above_the_inline_limit": (200, post("/v1/upload", b"x" * 65_537)),
    "upload_at_its_limit": (200, post("/v1/upload", b"x" * UPLOAD_LIMIT_BYTES)),
    "upload_above_its_limit": (413, post("/v1/upload", b"x" * (UPLOAD_LIMIT_BYTES + 1))),
    "upload_above_its_limit_by_its_own_error": (
        422,
        post("/v1/upload-narrow", b"x" * (UPLOAD_LIMIT_BYTES + 1)),
    ),
    "upload_chunked_small": (200, post_chunked("/v1/upload", b"abc", b"def")),
    "upload_chunked_large": (200, post_chunked("/v1/upload", *[b"y" * 50_000] * 5)),
    "upload_chunked_above_its_limit": (413, post_chunked("/v1/upload", *[b"y" * 50_000] * 7)),
    "upload_chunked_above_its_limit_by_its_own_error": (
        422,
        post_chunked("/v1/upload-narrow", *[b"y" * 50_000] * 7),
    ),
    "upload_refused_unread": (409, post("/v1/upload?refuse=1", b"x" * 250_000)),
    "copy": (200, post("/v1/copy", b"z" * 100_000)),
}


async def _all_answers(*, is_express: bool) -> dict[str, bytes]:
    async with serving(Streams(), is_express=is_express) as (_, raw):
        return {name: await raw.talk(asked) for name, (_, asked) in CONVERSATIONS.items()}


async def test_lane_and_plain_asgi_stream_equal_bytes() -> None:
    express = await _all_answers(is_express=True)
    plain = await _all_answers(is_express=False)

    assert {name: status_of(answer) for name, answer in express.items()} == {
        name: status for name, (status, _) in CONVERSATIONS.items()
    }
    for name, answer in express.items():
        assert masked(answer) == masked(plain[name]), name


@BOTH_WAYS
async def test_the_framing_follows_what_is_known_of_the_size(is_express: bool) -> None:
    async with serving(Streams(), is_express=is_express) as (_, raw):
        known = await raw.talk(get(""))
        unknown = await raw.talk(get("unknown=1"))
        old = await raw.talk(get("unknown=1", version="1.0"))
        head = await raw.talk(get("", "HEAD"))

    assert known.endswith(b"\r\n\r\n000001111122222")
    assert b"\r\ncontent-length: 15\r\n" in known
    assert unknown.endswith(b"\r\n\r\n5\r\n00000\r\n5\r\n11111\r\n5\r\n22222\r\n0\r\n\r\n")
    assert b"\r\ntransfer-encoding: chunked\r\n" in unknown
    assert old.endswith(b"\r\n\r\n000001111122222")
    assert b"transfer-encoding" not in old
    assert b"\r\ncontent-length: 15\r\n" in head
    assert head.endswith(b"\r\n\r\n")


@BOTH_WAYS
async def test_small_bodies_are_whole_and_large_ones_stream(is_express: bool) -> None:
    async with serving(Streams(), is_express=is_express) as (_, raw):
        small = await raw.talk(post("/v1/upload", b"x" * 100))
        large = await raw.talk(post("/v1/upload", b"x" * 100_000))
        grown = await raw.talk(post_chunked("/v1/upload", b"x" * 60_000, b"x" * 40_000))

    assert b'{"whole":100,' in small
    assert b'{"streamed":100000,' in large
    assert grown.partition(b"\r\n\r\n")[2] == large.partition(b"\r\n\r\n")[2]


@BOTH_WAYS
async def test_a_streamed_answer_keeps_its_place_and_its_connection(is_express: bool) -> None:
    asked = [request("GET", f"/v1/download?count={count}&size=9000") for count in (9, 0, 30)]
    echo = request("POST", "/v1/echo", b"the end")

    async with serving(Streams(), is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(b"".join([*asked, echo, *asked]))
        answers = [await read_answer(reader) for _ in range(7)]
        writer.close()

    sizes = [len(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
    assert sizes == [81_000, 0, 270_000, 7, 81_000, 0, 270_000]


@BOTH_WAYS
@pytest.mark.parametrize("query", ["end=broken", "end=held", "unknown=1&end=broken", "more=1", "more=-7"])
async def test_an_answer_that_cannot_be_completed_ends_in_a_reset(is_express: bool, query: str) -> None:
    streams = Streams()
    async with serving(streams, is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request("GET", f"/v1/download?{query}"))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 20)
            await asyncio.wait_for(reader.read(), 20)
        writer.close()
        await asyncio.wait_for(streams.closed.wait(), 20)


@BOTH_WAYS
async def test_an_old_client_cannot_take_a_part_for_the_whole(is_express: bool) -> None:
    async with serving(Streams(), is_express=is_express) as (_, raw):
        with pytest.raises(ConnectionResetError):
            await raw.talk(get("unknown=1&end=broken", version="1.0"))


@BOTH_WAYS
async def test_a_client_that_leaves_lets_the_producer_go(is_express: bool) -> None:
    streams = Streams()
    async with serving(streams, is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request("GET", "/v1/download?count=100000&size=10000"))
        await reader.readexactly(1000)

        writer.transport.abort()

        await asyncio.wait_for(streams.closed.wait(), 20)
    assert streams.produced < 100_000


@BOTH_WAYS
async def test_a_client_that_leaves_in_its_upload_cancels_the_handler(is_express: bool) -> None:
    streams = Streams()
    async with serving(streams, is_express=is_express) as (_, raw):
        _, writer = await raw.connect()
        writer.write(post("/v1/upload", b"x" * 200_000)[:-1])
        await streams.got_piece.wait()

        writer.transport.abort()

        await asyncio.wait_for(streams.cancelled.wait(), 20)


@BOTH_WAYS
async def test_an_upload_is_asked_for_only_after_it_was_let_in(is_express: bool) -> None:
    head = post("/v1/upload?refuse=1", b"x" * 100_000, "Expect: 100-continue")[:-100_000]
    wanted = post("/v1/upload", b"x" * 100_000, "Expect: 100-continue")

    async with serving(Streams(), is_express=is_express) as (_, raw):
        refused = await raw.talk(head)
        reader, writer = await raw.connect()
        writer.write(wanted[:-100_000])
        interim = await reader.readuntil(b"\r\n\r\n")
        writer.write(wanted[-100_000:])
        answer = await read_answer(reader)
        writer.close()

    assert status_of(refused) == 409
    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert b'{"streamed":100000,' in answer


async def test_a_large_upload_comes_in_pieces_that_fit_into_memory() -> None:
    size_bytes = 64 << 20
    streams = Streams()
    async with serving(streams) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(
            request("POST", "/v1/upload-wide", b"", f"Content-Length: {size_bytes}", has_length=False)
        )
        async for piece in _pieces(size_bytes):
            writer.write(piece)
            await writer.drain()
        answer = await read_answer(reader)
        writer.close()

    assert f'{{"streamed":{size_bytes},'.encode() in answer
    assert max(streams.piece_sizes) <= 1 << 20


async def _pieces(size_bytes: int) -> AsyncIterator[bytes]:
    for _ in range(size_bytes >> 20):
        yield b"u" * (1 << 20)


@BOTH_WAYS
async def test_documentation_knows_streaming_endpoints(is_express: bool) -> None:
    async with serving(Streams(), is_express=is_express) as (_, raw):
        answer = await raw.ask(request("GET", "/openapi.json"))

    assert re.search(rb'"/v1/upload":\s*\{\s*"post"', answer)
