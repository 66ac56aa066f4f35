"""Large documents are matched in a process of their own, so that every other request goes on meanwhile.

One process serves one query: it starts with the first large document and ends with the query. Documents stream into
it one after the other; here none is ever whole.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

from holdfast.lql.selector.json import selector_to_json
from holdfast.lql.selector.tree import Selector
from holdfast.state.layer.errors import QueryUnavailable
from holdfast.state.layer.worker_process import WorkerProcess, module_command

TIMEOUT_S: Final = 120.0
_COMMAND: Final = module_command("holdfast.state.layer.query.worker")


class LargeMatcher:
    """The process of one query, once there is one; it takes its turn with those of other queries."""

    def __init__(self, selector: Selector, turns: asyncio.Semaphore, *, now_ns: int) -> None:
        self._turns = turns
        self._has_turn = False
        self._selector = selector
        self._now_ns = now_ns
        self._process = WorkerProcess(_COMMAND)

    async def matches(self, document: AsyncIterator[bytes], size_bytes: int) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if not self._process.is_open:
                    await self._start()
                await self._process.write(b"%d\n" % size_bytes)
                await self._process.write_document(document)
                return await self._process.read(1) == b"1"
        except TimeoutError:
            raise QueryUnavailable(f"matching a large document took longer than {TIMEOUT_S:.0f} s") from None
        except BrokenPipeError:
            raise QueryUnavailable(
                "the process that matches large documents ended before its time; memory may be short"
            ) from None

    async def aclose(self) -> None:
        await self._process.aclose()
        if self._has_turn:
            self._has_turn = False
            self._turns.release()

    async def _start(self) -> None:
        if not self._has_turn:
            await self._turns.acquire()
            self._has_turn = True
        try:
            await self._process.open()
        except OSError as error:
            raise QueryUnavailable(f"no process for a large document: {error.strerror}") from error
        order = {"selector": selector_to_json(self._selector), "now_ns": self._now_ns}
        await self._process.write(json.dumps(order).encode() + b"\n")
