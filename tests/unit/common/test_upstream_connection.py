"""The client's side of one connection, fed by hand: every cut of every answer, and what is not an answer at all."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.common.upstream.connection import UpstreamConnection
from holdfast.common.upstream.errors import UpstreamBroken, UpstreamError, UpstreamMalformed, UpstreamTimeout
from holdfast.common.upstream.limits import UpstreamLimits
from holdfast.common.upstream.port import RequestStream, UpstreamAnswer
from tests.unit.common.fake_connection import FakeTransport

SMALL = UpstreamLimits(head_bytes=1000, headers_max=10, collected_bytes=100, buffered_bytes=100)
HEAD = b"POST / HTTP/1.1\r\nhost: there\r\n\r\n"


class FakeKeeper:
    """Counts what came back."""

    def __init__(self) -> None:
        self.released = 0
        self.forgotten = 0

    def release(self, connection: UpstreamConnection) -> None:
        self.released += 1

    def forget(self, connection: UpstreamConnection) -> None:
        self.forgotten += 1


class Bench:
    """A connection between two fakes."""

    def __init__(self, limits: UpstreamLimits = SMALL) -> None:
        self.keeper = FakeKeeper()
        self.transport = FakeTransport()
        self.connection = UpstreamConnection(self.keeper, limits, "http://there")
        self.connection.connection_made(self.transport)

    def begin(
        self, body: bytes | RequestStream = b"", *, is_head: bool = False, deadline_at_s: float | None = None
    ) -> asyncio.Future[UpstreamAnswer]:
        return self.connection.begin(HEAD, body, is_head=is_head, deadline_at_s=deadline_at_s)

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)


async def whole(answer: UpstreamAnswer) -> bytes:
    if answer.stream is None:
        return answer.body
    return b"".join([piece async for piece in answer.stream])


ANSWERS = {
    "small": b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 5\r\nX-Key: a\r\n\r\nhello",
    "empty": b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 0\r\nX-Key: a\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\nDate: now\r\nX-Key: a\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nDate: now\r\nX-Key: a\r\n\r\n",
    "large": b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 200\r\nX-Key: a\r\n\r\n" + b"h" * 200,
    "chunked": (
        b"HTTP/1.1 200 OK\r\nDate: now\r\nX-Key: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n"
        b"5\r\nhello\r\n1;name=value\r\n!\r\n0\r\nX-End: yes\r\n\r\n"
    ),
    "after 1xx": (
        b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 5\r\nX-Key: a\r\n\r\nhello"
    ),
}
BODIES = {"small": b"hello", "after 1xx": b"hello", "large": b"h" * 200, "chunked": b"hello!"}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_may_be_cut_at_every_byte(name: str) -> None:
    data = ANSWERS[name]
    for cut in range(1, len(data)):
        bench = Bench()
        waiting = bench.begin()
        bench.feed(data[:cut], data[cut:])

        answer = await waiting

        assert answer.headers == [(b"x-key", b"a")]
        assert await whole(answer) == BODIES.get(name, b"")
        assert answer.trailers == ({b"x-end": b"yes"} if name == "chunked" else {})
        assert bench.keeper.released == 1
        assert bench.connection.is_usable


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_come_byte_by_byte_one_after_the_other_on_one_connection(name: str) -> None:
    bench = Bench()
    for _ in range(3):
        waiting = bench.begin()
        bench.feed(*(bytes([byte]) for byte in ANSWERS[name]))

        answer = await waiting

        assert await whole(answer) == BODIES.get(name, b"")
    assert bench.keeper.released == 3


@pytest.mark.parametrize("name", [name for name in ANSWERS if name != "after 1xx"])
async def test_an_answer_that_is_cut_off_is_broken(name: str) -> None:
    data = ANSWERS[name]
    for cut in range(len(data)):
        bench = Bench()
        waiting = bench.begin()
        if cut:
            bench.feed(data[:cut])
        bench.connection.eof_received()

        with pytest.raises(UpstreamBroken):
            await whole(await waiting)
        assert bench.keeper.released == 0


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1200 + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: x\r\n" % number for number in range(20)) + b"\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    ],
    ids=lambda data: data[:40].decode(errors="replace"),
)
async def test_what_is_no_answer_is_malformed(data: bytes) -> None:
    bench = Bench()
    waiting = bench.begin()
    for start in range(0, len(data), 50):
        bench.feed(data[start : start + 50])

    with pytest.raises(UpstreamMalformed):
        await waiting
    assert bench.transport.is_over


async def test_a_stream_that_turns_malformed_ends_in_an_error() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"zz\r\n")
    answer = await waiting
    assert answer.stream is not None
    assert await anext(answer.stream) == b"hello"

    with pytest.raises(UpstreamMalformed):
        await anext(answer.stream)


async def test_endless_trailers_are_malformed() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n")
    answer = await waiting
    for _ in range(100):
        bench.feed(b"X-More: %b\r\n" % (b"x" * 100))

    with pytest.raises(UpstreamMalformed):
        await whole(answer)


async def test_an_answer_without_a_size_ends_with_its_connection() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"hel", b"lo")
    bench.connection.eof_received()

    assert await whole(await waiting) == b"hello"
    assert bench.keeper.released == 0


async def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")

    assert (await waiting).body == b"hello"
    assert bench.transport.is_over
    assert bench.keeper.released == 0


async def test_the_answer_to_head_has_a_size_and_no_body() -> None:
    bench = Bench()
    waiting = bench.begin(is_head=True)
    bench.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")

    answer = await waiting

    assert (answer.size_bytes, answer.body, answer.stream) == (5000, b"", None)


async def test_a_second_answer_is_dropped_with_its_connection() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(ANSWERS["small"] + ANSWERS["small"])

    assert (await waiting).body == b"hello"
    assert not bench.connection.is_usable
    assert bench.keeper.released == 0


async def test_whoever_speaks_unasked_is_hung_up_on() -> None:
    bench = Bench()

    bench.feed(b"HTTP/1.1 408 Request Timeout\r\n")

    assert bench.transport.is_over
    assert not bench.connection.is_usable


async def test_a_stream_that_nobody_reads_stops_the_network() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 150)
    answer = await waiting
    assert answer.stream is not None
    assert bench.transport.is_reading_paused

    await anext(answer.stream)

    assert not bench.transport.is_reading_paused


async def test_a_complete_stream_gives_its_connection_back_before_it_was_read() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 150\r\n\r\n" + b"x" * 150)
    answer = await waiting

    assert bench.keeper.released == 1
    assert not bench.transport.is_reading_paused
    assert await whole(answer) == b"x" * 150


async def test_closing_a_stream_early_drops_its_connection() -> None:
    bench = Bench()
    waiting = bench.begin()
    bench.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
    answer = await waiting
    assert answer.stream is not None

    await answer.stream.aclose()

    assert bench.transport.is_over
    with pytest.raises(StopAsyncIteration):
        await anext(answer.stream)


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"]
)
async def test_the_deadline_ends_a_call_until_its_answer_is_there(begun: bytes) -> None:
    bench = Bench()
    waiting = bench.begin(deadline_at_s=100.0)
    bench.feed(begun)
    bench.connection.check_deadline(99.9)
    assert not waiting.done()

    bench.connection.check_deadline(100.0)

    with pytest.raises(UpstreamTimeout):
        await waiting
    assert bench.transport.is_over


async def test_the_deadline_does_not_end_a_stream_that_has_begun() -> None:
    bench = Bench()
    waiting = bench.begin(deadline_at_s=100.0)
    bench.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    bench.connection.check_deadline(200.0)

    assert (await waiting).stream is not None
    assert not bench.transport.is_over


async def _pieces(*pieces: bytes, end: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if end is not None:
        raise end


async def test_a_body_of_known_size_goes_out_as_it_is() -> None:
    bench = Bench()
    waiting = bench.begin(RequestStream(_pieces(b"hel", b"", b"lo"), 5))
    await asyncio.sleep(0)
    bench.feed(ANSWERS["small"])
    await waiting

    assert bench.transport.written == HEAD + b"hello"


async def test_a_body_of_unknown_size_goes_out_chunked() -> None:
    bench = Bench()
    waiting = bench.begin(RequestStream(_pieces(b"hel", b"", b"lo")))
    await asyncio.sleep(0)
    bench.feed(ANSWERS["small"])
    await waiting

    assert bench.transport.written == HEAD + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"


@pytest.mark.parametrize("pieces", [(b"hell",), (b"hello", b"!")], ids=["less", "more"])
async def test_a_body_that_is_not_of_its_size_breaks_the_call(pieces: tuple[bytes, ...]) -> None:
    bench = Bench()
    waiting = bench.begin(RequestStream(_pieces(*pieces), 5))

    with pytest.raises(UpstreamBroken):
        await waiting
    assert bench.transport.is_over


async def test_an_error_of_the_source_of_a_body_is_the_error_of_the_call() -> None:
    bench = Bench()
    refused = UpstreamError("the client sent too much")
    waiting = bench.begin(RequestStream(_pieces(b"hel", end=refused)))

    with pytest.raises(UpstreamError) as caught:
        await waiting

    assert caught.value is refused
    assert bench.transport.is_over


async def test_a_body_goes_out_no_faster_than_it_is_taken() -> None:
    bench = Bench()
    bench.connection.pause_writing()
    waiting = bench.begin(RequestStream(_pieces(b"a", b"b", b"c"), 3))
    for _ in range(5):
        await asyncio.sleep(0)
    assert bench.transport.written == HEAD + b"a"

    bench.connection.resume_writing()
    for _ in range(5):
        await asyncio.sleep(0)

    assert bench.transport.written == HEAD + b"abc"
    bench.connection.abort()
    with pytest.raises(UpstreamBroken):
        await waiting


async def test_an_answer_before_the_end_of_the_body_is_given_and_ends_the_connection() -> None:
    never = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        await never.wait()

    bench = Bench()
    waiting = bench.begin(RequestStream(endless()))
    await asyncio.sleep(0)
    bench.feed(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")

    answer = await waiting

    assert (answer.status, answer.body) == (413, b"no")
    assert bench.transport.is_over
    assert bench.keeper.released == 0


async def test_whoever_gives_up_when_the_stream_of_its_answer_begins_ends_the_connection() -> None:
    bench = Bench()
    waiting = bench.begin()
    waiting.cancel()
    bench.feed(ANSWERS["large"][:-10])

    bench.connection.give_up(waiting)

    assert bench.transport.is_over


async def test_whoever_gives_up_after_its_answer_leaves_the_connection_to_the_next_call() -> None:
    bench = Bench()
    first = bench.begin()
    bench.feed(ANSWERS["large"])
    second = bench.begin()

    bench.connection.give_up(first)
    bench.feed(ANSWERS["small"])

    assert (await second).body == b"hello"
