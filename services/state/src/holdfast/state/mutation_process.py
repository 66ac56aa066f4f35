"""Mutations of a large document in a process of its own, so that every other request goes on meanwhile.

Reading 100 MB of JSON takes seconds in which a thread would hold the interpreter. The document streams into the process
and out of it: here it is never whole.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import IO, Final

from holdfast.common.errors import InvalidBody
from holdfast.state.errors import DocumentTooLarge, MutationUnavailable

TIMEOUT_S: Final = 120.0
_STEP_BYTES: Final = 1 << 20
_ANSWER_BYTES_MAX: Final = 64 << 10
_COMMAND: Final = (sys.executable, "-m", "holdfast.state.mutation_worker")


async def mutated(
    document: AsyncIterator[bytes], expressions: Sequence[str], *, now_ns: int, bytes_max: int
) -> AsyncGenerator[bytes, None]:
    """The changed document in pieces; a refusal comes before the first one."""
    order = json.dumps({"expressions": list(expressions), "now_ns": now_ns}).encode() + b"\n"
    async with _process() as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await _send(process.stdin, order, document)
                left_bytes = await _announced(process.stdout, bytes_max)
        except TimeoutError:
            raise MutationUnavailable(f"the mutation took longer than {TIMEOUT_S:.0f} s") from None
        except BrokenPipeError:
            raise _broken_off() from None
        while left_bytes:
            piece = await asyncio.to_thread(process.stdout.read, min(left_bytes, _STEP_BYTES))
            if not piece:
                raise _broken_off()
            left_bytes -= len(piece)
            yield piece


@asynccontextmanager
async def _process() -> AsyncIterator["subprocess.Popen[bytes]"]:
    process = await asyncio.to_thread(
        subprocess.Popen, _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            _close(pipe)
    process.wait()


def _close(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):  # What was not written yet; nobody reads it any more.
        pipe.close()


async def _send(pipe: IO[bytes], order: bytes, document: AsyncIterator[bytes]) -> None:
    await asyncio.to_thread(pipe.write, order)
    async for piece in document:
        await asyncio.to_thread(pipe.write, piece)
    await asyncio.to_thread(pipe.close)


async def _announced(pipe: IO[bytes], bytes_max: int) -> int:
    """How large the changed document is."""
    line = await asyncio.to_thread(pipe.readline, _ANSWER_BYTES_MAX)
    if not line.endswith(b"\n"):
        raise _broken_off()
    answer = json.loads(line)
    if "problem" in answer:
        raise InvalidBody(answer["problem"])
    size_bytes: int = answer["bytes"]
    if size_bytes > bytes_max:
        raise DocumentTooLarge(f"the document would be larger than {bytes_max} bytes")
    return size_bytes


def _broken_off() -> MutationUnavailable:
    return MutationUnavailable(
        "the process that mutates the document ended before its time; memory may be short"
    )
