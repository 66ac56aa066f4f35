"""Where a proxied stream may end, wherever its chunks are cut."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.common.express.message import StreamAnswer
from holdfast.common.serving.drain import Drain, Waits
from holdfast.gateway.proxy.stream_end import EndedChunks, Ending, ending_of

BOUNDARY = b"0123456789abcdef"
MULTIPART = [(b"content-type", b"multipart/related; boundary=" + BOUNDARY)]
MESSAGE = b"--" + BOUNDARY + b"\r\nmeta\r\n\r\n\r\n--" + BOUNDARY


def chunks_of(pieces: AsyncIterator[bytes], drain: Drain) -> EndedChunks:
    passed = StreamAnswer(200, MULTIPART, None, pieces)
    return EndedChunks(passed, ending_of(MULTIPART), drain, Waits(drain))


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_a_message_that_has_begun_is_passed_on_and_closed_wherever_it_is_cut(size: int) -> None:
    drain = Drain()

    async def pieces() -> AsyncIterator[bytes]:
        drain.begin(1)
        for start in range(0, len(MESSAGE), size):
            yield MESSAGE[start : start + size]
        await asyncio.Event().wait()

    passed = [chunk async for chunk in chunks_of(pieces(), drain)]

    assert b"".join(passed) == MESSAGE + b"--\r\n"


async def test_a_stream_that_is_never_without_a_message_ends_too() -> None:
    drain = Drain()

    async def pieces() -> AsyncIterator[bytes]:
        drain.begin(1)
        while True:
            yield MESSAGE

    chunks = chunks_of(pieces(), drain)
    passed = [chunk async for chunk in chunks]

    assert passed == [MESSAGE, MESSAGE, b"--\r\n"]
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)


async def test_a_stream_that_its_service_ends_stays_as_it_is() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield MESSAGE
        yield b"--\r\n"

    assert [chunk async for chunk in chunks_of(pieces(), Drain())] == [MESSAGE, b"--\r\n"]


def test_each_kind_of_stream_has_its_own_end() -> None:
    assert ending_of(MULTIPART) == Ending(b"\r\n--" + BOUNDARY, b"--\r\n")
    assert ending_of([(b"content-type", b"text/event-stream")]) == Ending(b"\n\n")
    assert ending_of([]) == Ending(b"\n")
