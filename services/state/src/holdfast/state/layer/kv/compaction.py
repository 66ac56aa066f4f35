"""Removes from the log what a compaction made unreadable: changes before it, and the values that were replaced by then."""

from collections.abc import Sequence
from typing import Final

from holdfast.state.layer.kv.records import (
    PROGRESS,
    event_of,
    log_bounds,
    read_progress,
    record_of,
    value_keys,
)
from holdfast.state.layer.kv.writer import KvWriter
from holdfast.storage.keys import next_key
from holdfast.storage.port import Batch, Record, Store, Transaction

STEP_RECORDS: Final = 64
"""Each is one event, with at most half a megabyte."""


async def forget_log(store: Store, writer: KvWriter, revision: int) -> None:
    """Remove what is before this revision, in small commits, from where it was done before.

    The note of how far it is lies beside the revision, which every put changes: only the writer gets at it under load.
    """
    first = (await store.view(read_progress)).forgotten
    start, end = log_bounds(first, revision - 1)
    while start < end:
        records = await store.range(start, end, limit=STEP_RECORDS)
        gone = forget_some(records)
        if gone:
            # Nobody reads or writes these any more, so nothing has to be checked.
            await store.commit(Batch(deletes=gone))
        start = end if len(records) < STEP_RECORDS else next_key(records[-1].key)
    await writer.run(lambda change: note_forgotten(change.tx, revision))


def forget_some(records: Sequence[Record]) -> set[bytes]:
    """What goes with these records of the log. A value that is not replaced stays where it is."""
    gone: set[bytes] = set()
    for log_record in records:
        event = event_of(log_record.value)
        if event.previous:
            gone.update(value_keys(record_of(event.previous)))
        if not event.record or not record_of(event.record).value_bytes:
            gone.add(log_record.key)
    return gone


def note_forgotten(tx: Transaction, revision: int) -> None:
    progress = read_progress(tx)
    if progress.forgotten < revision:
        progress.forgotten = revision
        tx.put(PROGRESS, progress.SerializeToString())
