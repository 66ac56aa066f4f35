"""A streamed answer on its way out: its first chunk, its other chunks, and its end, by the lane and by ASGI."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from holdfast.common.express.hang_up import reset
from holdfast.common.express.message import StreamAnswer, bad_header, may_have_body, render_stream_end
from holdfast.common.logging import get_logger

_log = get_logger("api.http.server")


class StreamBroken(Exception):
    """The answer cannot be completed and its head is out: the connection has to be dropped."""


async def begin(answer: StreamAnswer) -> None:
    """Fetch the first chunk, while an error can still become an answer of its own."""
    try:
        name = bad_header([*answer.headers, *answer.trailers.items()])
        if name is not None or not may_have_body(answer.status):
            raise ValueError(f"status {answer.status} and header {name!r} do not go with a stream")
        async for chunk in answer.chunks:
            if chunk:
                answer.first = chunk
                break
    except BaseException:
        await close(answer)
        raise


async def pieces(answer: StreamAnswer) -> AsyncGenerator[bytes, None]:
    """The chunks that are not empty; StreamBroken when they end in an error or do not have the announced size."""
    left_bytes = answer.size_bytes
    chunk = answer.first
    answer.first = b""
    while True:
        if left_bytes is not None:
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise StreamBroken("the chunks are larger than announced")
        if chunk:
            yield chunk
            await asyncio.sleep(0)  # Chunks that are all at hand must not keep other connections waiting.
        try:
            chunk = await anext(answer.chunks)
        except StopAsyncIteration:
            break
        except Exception as error:  # of any kind: it comes too late for an answer
            raise StreamBroken("the chunks ended in an error") from error
    if left_bytes:
        raise StreamBroken("the chunks are smaller than announced")


async def close(answer: StreamAnswer) -> None:
    """Let the producer of the chunks go."""
    aclose = getattr(answer.chunks, "aclose", None)  # Generators have it, other iterators need not.
    if aclose is not None:
        await aclose()


async def drop(answer: StreamAnswer, transport: asyncio.Transport) -> None:
    """No client is left to read it."""
    transport.abort()
    await close(answer)


class WriteFlow(Protocol):
    """Holds a writer up while its client does not read."""

    async def drain(self) -> None: ...


async def write(answer: StreamAnswer, head: bytes, transport: asyncio.Transport, flow: WriteFlow) -> None:
    """Write a whole answer to a connection, no faster than the client takes it."""
    is_chunked = answer.size_bytes is None
    try:
        transport.write(head)
        async with aclosing(pieces(answer)) as chunks:
            async for piece in chunks:
                transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                await flow.drain()
        if is_chunked:
            transport.write(render_stream_end(answer))
    except StreamBroken as error:
        log_broken(error)
        reset(transport)
    finally:
        await close(answer)


def log_broken(error: StreamBroken) -> None:
    """Say why a connection is about to be dropped."""
    _log.error("http.answer.broken_off", reason=str(error), exception=error.__cause__ or error)
