"""A local store as of one revision, and back onto a shelf."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from holdfast.storage.local import layout
from holdfast.storage.local.shelf import ShelfView, Write
from holdfast.storage.port import SnapshotRecord

PAGE_RECORDS = 500


class LocalSnapshot:
    """The `Snapshot` of the port."""

    def __init__(self, revision: int, record_count: int, view: ShelfView) -> None:
        self.revision = revision
        self.record_count = record_count
        self._view = view

    async def records(self) -> AsyncIterator[Sequence[SnapshotRecord]]:
        rows = self._view.scan(layout.RECORD, layout.after_prefix(layout.RECORD))
        while page := list(islice(rows, PAGE_RECORDS)):
            yield [
                SnapshotRecord(layout.decode_stored(key[1:], stored), layout.stored_blobs(stored))
                for key, stored in page
            ]
            await asyncio.sleep(0)


def restored_writes(item: SnapshotRecord) -> list[Write]:
    """What puts a record of a snapshot back on a shelf."""
    record, blobs = item
    stored = layout.encode_stored(
        record.value, record.create_revision, record.mod_revision, record.version, blobs
    )
    return [
        Write(layout.RECORD + record.key, stored),
        *[Write(layout.blob_reference_key(blob_id, record.key), b"") for blob_id in blobs],
    ]
