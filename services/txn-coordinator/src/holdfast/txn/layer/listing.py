"""The transactions under way, those in doubt first: for people who look after them."""

from typing import NamedTuple

from holdfast.common.clock import Clock, unix_s
from holdfast.common.ids import xid_seconds
from holdfast.leases.layer.records import held_range, held_txn_of, member_of
from holdfast.storage.port import Store
from holdfast.txn.layer import rules
from holdfast.txn.layer.port import Member
from holdfast.txn.layer.records import RECORDS
from holdfast.txn.layer.records_pb2 import TxnParticipant, TxnRecord
from holdfast.txn.layer.rules import State

LIMIT_DEFAULT, LIMIT_MAX = 100, 1000


class Listed(NamedTuple):
    """A transaction as it is shown."""

    txn_id: str
    state: State
    age_s: int
    expires_at_s: int
    term: int
    participants: list[TxnParticipant]

    @property
    def is_in_doubt(self) -> bool:
        return self.state is not State.PENDING


async def list_transactions(store: Store, clock: Clock, limit: int) -> tuple[list[Listed], bool]:
    """Those with a record, then those known by their leases alone; and whether there are more."""
    rows = await RECORDS.fetch_range(store, limit=limit + 1)
    known = {str(row.parts[0]): row.message for row in rows}
    held = await _held(store, limit + 1)
    for txn_id, members in held.items():
        participants = [rules.Participant(member) for member in members]
        rules.merge_participants(known.setdefault(txn_id, TxnRecord()), participants)
    now_s = int(clock.wall_s())
    listed = [_listed(txn_id, record, now_s) for txn_id, record in known.items()]
    listed.sort(key=lambda one: (not one.is_in_doubt, -one.age_s, one.txn_id))
    return listed[:limit], len(listed) > limit


async def in_doubt(store: Store, now_s: int) -> tuple[int, int]:
    """How many decisions have not reached every participant, and the age of the oldest of them.

    Of the oldest thousand records: ids begin with the time, so these come first.
    """
    rows = await RECORDS.fetch_range(store, limit=LIMIT_MAX)
    doubtful = [one for row in rows if (one := _listed(str(row.parts[0]), row.message, now_s)).is_in_doubt]
    return len(doubtful), max((one.age_s for one in doubtful), default=0)


async def _held(store: Store, limit: int) -> dict[str, list[Member]]:
    start, end = held_range()
    held: dict[str, list[Member]] = {}
    for record in await store.range(start, end, limit=limit, keys_only=True):
        held.setdefault(held_txn_of(record.key), []).append(member_of(record.key))
    return held


def _listed(txn_id: str, record: TxnRecord, now_s: int) -> Listed:
    return Listed(
        txn_id,
        rules.state_of(record),
        max(0, now_s - xid_seconds(txn_id)),
        unix_s(record.expires_at_ms),
        record.term,
        list(record.participants),
    )
