"""Does this committed document match? Small ones are read here, large ones in a thread or in a process of their own."""

import asyncio

from holdfast.lql.document.value import parse_document
from holdfast.lql.errors import InvalidDocument
from holdfast.lql.selector.evaluation import Matcher
from holdfast.lql.selector.tree import Selector, is_match_all
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import committed_view
from holdfast.state.layer.query.process import LargeMatcher
from holdfast.state.layer.records_pb2 import Document
from holdfast.txn.layer.port import Member

# Evaluating this much takes about a millisecond, in which no other request is served.
TURN_BYTES = 64 << 10
# A thread keeps the interpreter while it reads JSON: about 20 ms for this.
THREAD_BYTES_MAX = 1 << 20


class DocumentMatcher:
    """One selector, asked for many documents; leaves the loop to others now and then."""

    def __init__(
        self, state: StateService, selector: Selector, turns: asyncio.Semaphore, *, now_ns: int
    ) -> None:
        self._state = state
        self._is_match_all = is_match_all(selector)
        self._matcher = Matcher(selector, now_ns=now_ns)
        self._large = LargeMatcher(selector, turns, now_ns=now_ns)
        self._turn_bytes = 0

    async def matches(self, member: Member, document: Document) -> bool:
        if self._is_match_all:
            return True
        content = document.content
        if not content.HasField("blob"):
            self._turn_bytes += len(content.inline)
            if self._turn_bytes > TURN_BYTES:
                self._turn_bytes = 0
                await asyncio.sleep(0)
            return self._is_match(content.inline)
        if content.size_bytes <= THREAD_BYTES_MAX:
            text = await self._state.read_whole(member, committed_view(document))
            return await asyncio.to_thread(self._is_match, text)
        return await self._large.matches(self._state.open_content(member, content), content.size_bytes)

    async def aclose(self) -> None:
        await self._large.aclose()

    def _is_match(self, text: bytes) -> bool:
        try:
            return self._matcher.matches(parse_document(text))
        except InvalidDocument:
            return False  # Nested deeper than any pointer reaches.
