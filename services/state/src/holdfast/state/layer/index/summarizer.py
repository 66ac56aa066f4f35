"""Makes the summaries of large documents in the background, one at a time, in a process of its own.

The process that published a document makes its summary at once. Every other process on the store waits for a while
before it takes over, because the first one may have died; until then the document stays pending in the store.
"""

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

from holdfast.common.logging import get_logger
from holdfast.state.layer.index.summaries import Summaries
from holdfast.state.layer.index.terms import Terms
from holdfast.state.layer.records import DOCUMENTS, is_large
from holdfast.state.layer.worker_process import WorkerProcess, module_command
from holdfast.state.metrics import IndexMetrics
from holdfast.storage.errors import StorageError
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Store
from holdfast.storage.records_pb2 import Payload
from holdfast.txn.layer.port import Member

TIMEOUT_S: Final = 600.0
TAKE_OVER_S: Final = 20.0
TRIES_MAX: Final = 4
QUEUE_MAX: Final = 10_000
_RETRY_S: Final = 2.0
_IDLE_S: Final = 30.0
_LINE_BYTES_MAX: Final = 32
_COMMAND: Final = module_command("holdfast.state.layer.index.worker")

_log = get_logger("state.index")

OpenContent = Callable[[Member, Payload], AsyncIterator[bytes]]


class Summarizer:
    """Works on what `want` names, and on what is found pending."""

    def __init__(
        self,
        store: Store,
        summaries: Summaries,
        terms: Terms,
        open_content: OpenContent,
        metrics: IndexMetrics,
    ) -> None:
        self._store = store
        self._summaries = summaries
        self._terms = terms
        self._open_content = open_content
        self._metrics = metrics
        self._process = WorkerProcess(_COMMAND)
        self._due: dict[Member, float] = {}
        self._heap: list[tuple[float, Member]] = []
        self._has_more = True  # In the store, than fit into the queue.
        self._news = asyncio.Event()
        self._tries: dict[Member, int] = {}
        summaries.on_wanted = self.want

    def want(self, member: Member) -> None:
        """This process published it."""
        self._put(member, 0.0)

    def noticed(self, member: Member) -> None:
        """Some process published it, perhaps this one."""
        if member not in self._due:
            self._put(member, TAKE_OVER_S * random.uniform(1.0, 2.0))

    def look_again(self) -> None:
        """What was published may not have been noticed."""
        self._has_more = True
        self._news.set()

    async def run(self) -> None:
        """Ends only by cancellation."""
        async with aclosing(self._process):
            while True:
                try:
                    await self._work_one(await self._next())
                except StorageError as error:
                    warn_unless_told(_log, "index.summary.failed", error)
                    self.look_again()  # What was being worked on is pending in the store, and nowhere else.
                    await asyncio.sleep(_RETRY_S * random.uniform(0.5, 1.5))

    async def catch_up(self) -> None:
        """Make every summary that is pending now."""
        async with aclosing(self._process):
            while members := await self._summaries.wanted(None, 1):
                await self._work_one(members[0])

    # -- what is due

    def _put(self, member: Member, delay_s: float) -> None:
        if len(self._due) >= QUEUE_MAX and member not in self._due:
            self._has_more = True
            return
        due_s = asyncio.get_running_loop().time() + delay_s
        if due_s < self._due.get(member, float("inf")):
            self._due[member] = due_s
            heapq.heappush(self._heap, (due_s, member))
            self._news.set()

    async def _next(self) -> Member:
        while True:
            if not self._due and self._has_more:
                await self._load()
            self._news.clear()
            now_s = asyncio.get_running_loop().time()
            wait_s = None
            while self._heap:
                due_s, member = self._heap[0]
                if self._due.get(member) != due_s:
                    heapq.heappop(self._heap)
                    continue
                if due_s <= now_s:
                    heapq.heappop(self._heap)
                    del self._due[member]
                    return member
                wait_s = due_s - now_s
                break
            await self._wait(wait_s)

    async def _wait(self, wait_s: float | None) -> None:
        """Until something is due or new. A process that has nothing to do for a while is ended."""
        idle_s = _IDLE_S if self._process.is_open else None
        timeout_s = min((limit_s for limit_s in (wait_s, idle_s) if limit_s is not None), default=None)
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            if timeout_s == idle_s:
                await self._process.aclose()

    async def _load(self) -> None:
        """What an earlier process left behind, or did not fit into the queue."""
        members = await self._summaries.wanted(None, QUEUE_MAX // 10)
        self._has_more = False
        for member in members:
            self._put(member, TAKE_OVER_S * random.uniform(0.0, 1.0) if self._store.is_shared else 0.0)
        self._has_more = len(members) == QUEUE_MAX // 10

    # -- one summary

    async def _work_one(self, member: Member) -> None:
        if not await self._summaries.is_wanted(member):
            self._tries.pop(member, None)
            return
        document = await DOCUMENTS.fetch(self._store, *member)
        if document is None or not is_large(document):
            self._tries.pop(member, None)
            await self._summaries.put(member, "", b"")
            return
        if await self._summaries.has(member, document.etag):
            self._tries.pop(member, None)
            await self._summaries.drop_wanted(member, document.etag)
            return
        try:
            encoded = await self._made(member, document.content)
        except (OSError, TimeoutError, StorageError) as error:
            await self._process.aclose()
            if self._is_worth_another_try(member):
                _log.warn(
                    "index.summary.failed", namespace=member.namespace, key=member.key, reason=str(error)
                )
                self._put(member, _RETRY_S * 2 ** self._tries[member] * random.uniform(0.5, 1.5))
                return
            _log.error(
                "index.summary.given_up", namespace=member.namespace, key=member.key, reason=str(error)
            )
            encoded = b""  # It lets everything through, as none does.
        self._tries.pop(member, None)
        if await self._summaries.put(member, document.etag, encoded):
            self._metrics.summaries.inc()
        else:
            self._put(member, 0.0)

    async def _made(self, member: Member, content: Payload) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            if not self._process.is_open:
                await self._process.open()
                await self._process.write((self._terms.secret or b"").hex().encode() + b"\n")
            await self._process.write(b"%d\n" % content.size_bytes)
            await self._process.write_document(self._open_content(member, content))
            left_bytes = int(await self._process.read_line(_LINE_BYTES_MAX))
            return await self._process.read_exactly(left_bytes) if left_bytes else b""

    def _is_worth_another_try(self, member: Member) -> bool:
        tries = self._tries[member] = self._tries.get(member, 0) + 1
        return tries < TRIES_MAX
