"""The index engine: candidates from the index as long as it helps, from a scan where it does not."""

from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Final

from holdfast.lql.selector.tree import Selector
from holdfast.state.layer.index.plan import Plan, Planner
from holdfast.state.layer.index.reader import Batch, IndexReader
from holdfast.state.layer.index.writer import IndexWriter
from holdfast.state.layer.query.scan import Candidate, Candidates, scan
from holdfast.state.layer.records import DOCUMENTS, is_visible
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.port import Store

FETCHED_DOCUMENTS: Final = 64
_CHUNK_MIN: Final = 64

# A named tuple's own constructor takes three times as long, and a page has many.
_candidate: Callable[[tuple[str, Document | None, bool]], Candidate] = partial(tuple.__new__, Candidate)


class IndexSearch:
    """The index of one store, asked for candidates."""

    def __init__(self, store: Store, index: IndexWriter) -> None:
        self._store = store
        self._index = index

    def reader(self, namespace: str) -> IndexReader:
        return IndexReader(self._store, self._index.states, namespace)

    def plan(self, selector: Selector, now_ns: int) -> Plan:
        return Planner(self._index.terms, now_ns=now_ns).plan(selector)

    async def candidates(
        self, namespace: str, plan: Plan, after_key: str, *, limit: int, wants_documents: bool
    ) -> Candidates:
        chunk = max(_CHUNK_MIN, limit + 1)
        if plan is not None:
            async with aclosing(self.reader(namespace).batches(plan, after_key, chunk)) as batches:
                async for batch in batches:
                    if batch is None:
                        break
                    async with aclosing(self._pages(namespace, batch, wants_documents)) as pages:
                        async for page in pages:
                            yield page
                    after_key = batch.end_key
                else:
                    return
        async with aclosing(scan(self._store, namespace, after_key)) as pages:
            async for page in pages:
                yield page

    async def _pages(self, namespace: str, batch: Batch, wants_documents: bool) -> Candidates:
        keys = batch.keys
        if not wants_documents and all(is_sure for _, is_sure in keys):
            yield [_candidate((key, None, True)) for key, _ in keys]
            return
        for start in range(0, len(keys), FETCHED_DOCUMENTS):
            page = batch._replace(keys=keys[start : start + FETCHED_DOCUMENTS])
            yield await self._fetched(namespace, page, wants_documents)

    async def _fetched(self, namespace: str, batch: Batch, wants_documents: bool) -> list[Candidate]:
        """A document that changed since the index was read is looked at again, however sure the index was."""
        stored = {
            key: DOCUMENTS.key(namespace, key)
            for key, is_sure in batch.keys
            if wants_documents or not is_sure
        }
        records = await self._store.get_many(list(stored.values()))
        found: list[Candidate] = []
        for key, is_sure in batch.keys:
            if key not in stored:
                found.append(Candidate(key, None, is_sure=True))
                continue
            record = records.get(stored[key])
            document = None if record is None else DOCUMENTS.decode(record)
            if record is not None and document is not None and is_visible(key, document):
                found.append(Candidate(key, document, is_sure and record.mod_revision <= batch.revision))
        return found
