"""Removes what a compaction made unreadable: the log before it, and the large values that were replaced by then."""

from functools import partial
from typing import Final

from holdfast.state.layer.kv.records import CHANGES, log_bounds, piece_keys, record_of, revision_of
from holdfast.storage.port import Store, Transaction

STEP_RECORDS: Final = 200


async def forget_log(store: Store, first: int, revision: int) -> None:
    """Remove the log of [first, revision) in small commits. Where it was removed before, it would be walked over again."""
    while first < revision:
        first = await store.transact(partial(forget_some, first=first, revision=revision))


def forget_some(tx: Transaction, first: int, revision: int) -> int:
    """One step of it; returns where the next one begins."""
    records = tx.range(*log_bounds(first, revision - 1), limit=STEP_RECORDS)
    for record in records:
        for event in CHANGES.decode(record).events:
            if event.previous:
                for key in piece_keys(record_of(event.previous)):
                    tx.delete(key)
        tx.delete(record.key)
    return revision if len(records) < STEP_RECORDS else revision_of(records[-1].key)
