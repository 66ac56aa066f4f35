"""Queries: one page of the keys, or documents, that match a selector."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

from holdfast.common.clock import SteadyClock
from holdfast.lql.temporal import NANOS_PER_S, format_utc
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.errors import IndexUnavailable
from holdfast.state.layer.index.plan import Plan
from holdfast.state.layer.index.search import IndexSearch
from holdfast.state.layer.namespace import NamespaceService, engine_of
from holdfast.state.layer.query.engine import Engine
from holdfast.state.layer.query.match import DocumentMatcher
from holdfast.state.layer.query.request import QueryRequest, decode_cursor, encode_cursor
from holdfast.state.layer.query.scan import Candidate, Candidates, scan
from holdfast.state.layer.records import DOCUMENTS, is_large, is_visible
from holdfast.state.layer.records_pb2 import Document, IndexState
from holdfast.storage.port import Store
from holdfast.txn.layer.port import Member

# Documents that matched stay in memory until they are sent, up to this; what is beyond is read again.
HELD_BYTES_MAX = 4 << 20
PROCESSES_MAX = 2


class Match(NamedTuple):
    """A key that matches, and its document if there was room for it."""

    key: str
    document: Document | None


class Page(NamedTuple):
    """What one request is answered with. `metadata` is of the index; a scan has none."""

    query: QueryRequest
    matches: list[Match]
    cursor: str
    index_seq: int
    metadata: dict[str, str]
    seen_count: int


class QueryService:
    """The queries of one store."""

    def __init__(
        self, store: Store, state: StateService, namespaces: NamespaceService, clock: SteadyClock
    ) -> None:
        self._store = store
        self._state = state
        self._namespaces = namespaces
        self._clock = clock
        self._search = IndexSearch(store, state.index)
        # A process for large documents needs several times their size in memory.
        self._processes = asyncio.Semaphore(PROCESSES_MAX)

    async def page(self, query: QueryRequest) -> Page:
        engine = engine_of(await self._namespaces.get(query.namespace), query.engine)
        after_key = decode_cursor(engine, query.cursor)
        now_ns = self._now_ns()
        matcher = DocumentMatcher(self._state, query.selector, self._processes, now_ns=now_ns)
        plan = self._search.plan(query.selector, now_ns) if engine is Engine.INDEX else None
        index_seq = self._store.revision
        try:
            async with aclosing(self._candidates(query, after_key, plan, engine)) as candidates:
                matches, has_more, seen_count = await self._collect(query, matcher, candidates, plan)
        finally:
            await matcher.aclose()
        cursor = encode_cursor(engine, matches[-1].key) if has_more else ""
        if engine is Engine.SCAN or not (matches or await self.index_seq(query.namespace)):
            return Page(query, matches, cursor, 0, {}, seen_count)
        return Page(query, matches, cursor, index_seq, await self._metadata(query), seen_count)

    async def flush(self, namespace: str) -> int:
        """The revision of an index that never lags behind; 0: there is nothing in it."""
        config = await self._namespaces.get(namespace)
        if config.etag and config.preferred_engine != Engine.INDEX:
            raise IndexUnavailable("the index of this namespace is turned off; turn it on at /v1/namespace")
        return await self.index_seq(namespace)

    async def index_seq(self, namespace: str) -> int:
        """The revision up to which the index holds everything; 0: there is nothing in it."""
        return 0 if await self._search.reader(namespace).is_empty() else self._store.revision

    async def documents(self, page: Page) -> AsyncGenerator[tuple[str, Document], None]:
        """The documents of a page. One that was not held is read again, and left out if it no longer matches."""
        namespace = page.query.namespace
        matcher = DocumentMatcher(self._state, page.query.selector, self._processes, now_ns=self._now_ns())
        try:
            for key, held in page.matches:
                document = held
                if held is None or is_large(
                    held
                ):  # What a large one refers to may be gone before its turn comes.
                    document = await DOCUMENTS.fetch(self._store, namespace, key)
                if document is None or not is_visible(key, document):
                    continue
                is_known = held is not None and held.etag == document.etag
                if is_known or await matcher.matches(Member(namespace, key), document):
                    yield key, document
        finally:
            await matcher.aclose()

    def content(self, namespace: str, key: str, document: Document) -> AsyncIterator[bytes]:
        """The bytes of a document that lies in a blob."""
        return self._state.open_content(Member(namespace, key), document.content)

    async def _collect(
        self, query: QueryRequest, matcher: DocumentMatcher, candidates: Candidates, plan: Plan
    ) -> tuple[list[Match], bool, int]:
        """The matches of one page, whether others may follow, and how many documents were looked at."""
        matches: list[Match] = []
        held_bytes = seen_count = 0
        async for page in candidates:
            for candidate in page:
                if len(matches) == query.limit:
                    return matches, True, seen_count
                seen_count += 1
                if not (candidate.is_sure or await self._is_match(query, matcher, candidate, plan)):
                    continue
                document = candidate.document if query.returns_documents else None
                if document is not None:
                    held_bytes += len(document.content.inline)
                    document = document if held_bytes <= HELD_BYTES_MAX else None
                matches.append(Match(candidate.key, document))
        return matches, False, seen_count

    async def _is_match(
        self, query: QueryRequest, matcher: DocumentMatcher, candidate: Candidate, plan: Plan
    ) -> bool:
        if candidate.document is None:
            return False
        member = Member(query.namespace, candidate.key)
        if not await self._state.index.summaries.may_match(member, candidate.document, plan):
            return False
        return await matcher.matches(member, candidate.document)

    def _candidates(self, query: QueryRequest, after_key: str, plan: Plan, engine: Engine) -> Candidates:
        if engine is Engine.SCAN:
            return scan(self._store, query.namespace, after_key)
        return self._search.candidates(
            query.namespace, plan, after_key, limit=query.limit, wants_documents=query.returns_documents
        )

    async def _metadata(self, query: QueryRequest) -> dict[str, str]:
        """Nothing is ever pending: the index is as new as the query."""
        updated_at = format_utc(self._now_ns() // NANOS_PER_S * NANOS_PER_S) or ""
        metadata = {"index_pending": "false", "index_updated_at": updated_at}
        states = self._state.index.states
        state = await self._store.view(lambda view: states.get(view, query.namespace))
        if state.phase != IndexState.READY:
            progress = await self._store.view(lambda view: states.progress(view, query.namespace))
            metadata["index_phase"] = IndexState.Phase.Name(state.phase).lower()
            metadata["index_documents"] = str(progress.document_count)
        return metadata

    def _now_ns(self) -> int:
        return int(self._clock.now_s() * NANOS_PER_S)
