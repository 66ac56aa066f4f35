"""Removes what a compaction made unreadable: the log before it, and the large values that were replaced by then."""

from typing import Final

from holdfast.state.layer.kv.records import CHANGES, log_bounds, piece_keys, record_of
from holdfast.storage.port import Store, Transaction

STEP_RECORDS: Final = 200


async def forget_log(store: Store, revision: int) -> None:
    """Remove the log of all revisions before this one, in small commits."""
    while await store.transact(lambda tx: forget_some(tx, revision)):
        pass


def forget_some(tx: Transaction, revision: int) -> bool:
    """One step of it; whether there may be more."""
    records = tx.range(*log_bounds(0, revision - 1), limit=STEP_RECORDS)
    for record in records:
        for event in CHANGES.decode(record).events:
            if event.previous:
                for key in piece_keys(record_of(event.previous)):
                    tx.delete(key)
        tx.delete(record.key)
    return len(records) == STEP_RECORDS
