"""A local store as of one revision, and back onto an engine."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from holdfast.storage.local import layout
from holdfast.storage.local.engine import EngineView, Write
from holdfast.storage.port import Event, SnapshotRecord

PAGE_RECORDS = 500
PAGE_BYTES = 4 << 20  # Values may be large, and a reader holds a whole page.


class LocalSnapshot:
    """The `Snapshot` of the port."""

    def __init__(
        self, revision: int, compacted_revision: int, *, record_count: int, view: EngineView
    ) -> None:
        self.revision = revision
        self.compacted_revision = compacted_revision
        self.record_count = record_count
        self._view = view

    async def records(self) -> AsyncIterator[Sequence[SnapshotRecord]]:
        page: list[SnapshotRecord] = []
        page_bytes = 0
        for key, stored in self._view.scan(layout.RECORD, layout.after_prefix(layout.RECORD)):
            page.append(SnapshotRecord(layout.decode_stored(key[1:], stored), layout.stored_blobs(stored)))
            page_bytes += len(stored)
            if len(page) == PAGE_RECORDS or page_bytes >= PAGE_BYTES:
                yield page
                page, page_bytes = [], 0
                await asyncio.sleep(0)
        if page:
            yield page

    async def changes(self) -> AsyncIterator[Sequence[Event]]:
        page: list[Event] = []
        page_bytes = 0
        first = layout.change_key(self.compacted_revision + 1)
        for key, raw in self._view.scan(first, layout.after_prefix(layout.CHANGE)):
            page += layout.decode_change(layout.change_revision(key), raw)
            page_bytes += len(raw)
            if len(page) >= PAGE_RECORDS or page_bytes >= PAGE_BYTES:
                yield page
                page, page_bytes = [], 0
                await asyncio.sleep(0)
        if page:
            yield page


def restored_writes(item: SnapshotRecord) -> list[Write]:
    """What puts a record of a snapshot back on an engine."""
    record, blobs = item
    return [
        (layout.RECORD + record.key, layout.encode_stored(record, blobs)),
        *[(layout.blob_reference_key(blob_id, record.key), b"") for blob_id in blobs],
    ]
