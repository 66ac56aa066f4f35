"""The scan engine: every document of a namespace in the order of its key."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from holdfast.state.layer.query.visibility import is_visible
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.keys import next_key
from holdfast.storage.port import Store

PAGE_DOCUMENTS = 64


class Candidate(NamedTuple):
    """A key that may match. `is_sure`: it does, and its document need not be read."""

    key: str
    document: Document | None
    is_sure: bool = False


Candidates = AsyncGenerator[Sequence[Candidate], None]
"""Pages in the order of keys, each as of one moment."""


async def scan(store: Store, namespace: str, after_key: str) -> Candidates:
    start: bytes | None = next_key(DOCUMENTS.key(namespace, after_key)) if after_key else None
    while True:
        rows = await DOCUMENTS.fetch_range(store, namespace, limit=PAGE_DOCUMENTS, start=start)
        found = [Candidate(str(row.parts[1]), row.message) for row in rows]
        visible = [
            candidate
            for candidate in found
            if candidate.document and is_visible(candidate.key, candidate.document)
        ]
        if visible:
            yield visible
        if len(rows) < PAGE_DOCUMENTS:
            return
        await asyncio.sleep(0)  # A local store never waits, and nothing here may match for a long time.
        start = next_key(rows[-1].record.key)
