"""Large documents are matched in a process of their own, so that every other request goes on meanwhile.

One process serves one query: it starts with the first large document and ends with the query. Documents stream into
it one after the other; here none is ever whole.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from holdfast.lql.selector import Selector
from holdfast.lql.selector_json import selector_to_json
from holdfast.state.errors import QueryUnavailable

TIMEOUT_S: Final = 120.0
_COMMAND: Final = (sys.executable, "-m", "holdfast.state.query_worker")


class LargeMatcher:
    """The process of one query, once there is one; it takes its turn with those of other queries."""

    def __init__(self, selector: Selector, turns: asyncio.Semaphore, *, now_ns: int) -> None:
        self._turns = turns
        self._selector = selector
        self._now_ns = now_ns
        self._process: subprocess.Popen[bytes] | None = None

    async def matches(self, document: AsyncIterator[bytes], size_bytes: int) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                process = self._process or await self._start()
                return await _ask(process, document, size_bytes)
        except TimeoutError:
            raise QueryUnavailable(f"matching a large document took longer than {TIMEOUT_S:.0f} s") from None
        except BrokenPipeError:
            raise _broken_off() from None

    async def aclose(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.to_thread(_end, process)
            self._turns.release()

    async def _start(self) -> "subprocess.Popen[bytes]":
        await self._turns.acquire()
        starting = asyncio.create_task(
            asyncio.to_thread(subprocess.Popen, _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._process = await starting  # It is on its way already; `aclose` ends it.
            raise
        except OSError as error:
            self._turns.release()
            raise QueryUnavailable(f"no process for a large document: {error.strerror}") from error
        self._process = process
        order = {"selector": selector_to_json(self._selector), "now_ns": self._now_ns}
        assert process.stdin is not None
        await asyncio.to_thread(process.stdin.write, json.dumps(order).encode() + b"\n")
        return process


async def _ask(process: "subprocess.Popen[bytes]", document: AsyncIterator[bytes], size_bytes: int) -> bool:
    assert process.stdin is not None and process.stdout is not None
    await asyncio.to_thread(process.stdin.write, b"%d\n" % size_bytes)
    async for piece in document:
        await asyncio.to_thread(process.stdin.write, piece)
    await asyncio.to_thread(process.stdin.flush)
    answer = await asyncio.to_thread(process.stdout.read, 1)
    if not answer:
        raise _broken_off()
    return answer == b"1"


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # What was not written yet; nobody reads it any more.
                pipe.close()
    process.wait()


def _broken_off() -> QueryUnavailable:
    return QueryUnavailable(
        "the process that matches large documents ended before its time; memory may be short"
    )
