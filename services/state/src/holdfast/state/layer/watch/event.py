"""What a commit means to those who watch keys: documents that are published or go, leases that begin and end. Pure.

    document   visible after the commit, and changed by it: put; visible before it alone: delete
    lease      another lease than before: released or expired, then acquired; the same lease with another end: nothing

What nobody may find is not told: hidden documents and diagnostics, and the leases of keys that were hidden when they were
granted, from their beginning to their end.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.records import DIAGNOSTICS_PREFIX, DOCUMENTS, is_visible
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.port import Event, Record
from holdfast.txn.layer.port import Member

RANGES: Final = (DOCUMENTS.bounds(), LEASES.bounds())
"""What is looked at, in the order of keys: of one commit a document is told before its lease."""

_FIRST_LEASE: Final = LEASES.bounds()[0]
_NO_LEASE: Final = Lease()


class EventType(StrEnum):
    PUT = "put"
    DELETE = "delete"
    ACQUIRED = "acquired"
    RELEASED = "released"
    EXPIRED = "expired"


class KeyEvent(NamedTuple):
    """One thing that happened to a key. What acts for a lease is its id, which is its holder's alone and not told."""

    type: EventType
    key: str
    version: int = 0
    """Of the document; of one that is gone, that of its removal, and 0 if not even a version is left."""
    etag: str = ""
    owner: str = ""
    fencing_token: int = 0
    expires_at_ms: int = 0


def is_told(key: bytes) -> bool:
    """Whether this is a key of the records that are looked at."""
    return any(first <= key < last for first, last in RANGES)


def key_events(event: Event, member: Member) -> list[KeyEvent]:
    """What is to be told of a changed record; `event` has the record before it."""
    if member.key.startswith(DIAGNOSTICS_PREFIX):
        return []
    if event.key < _FIRST_LEASE:
        return _document_events(event, member.key)
    return _lease_events(event, member.key)


def _document_events(event: Event, key: str) -> list[KeyEvent]:
    before, after = _document(event.previous), _document(event.record)
    was_visible = before is not None and is_visible(key, before)
    if after is not None and is_visible(key, after):
        if before is not None and was_visible and before.version == after.version:
            return []
        return [KeyEvent(EventType.PUT, key, after.version, after.etag)]
    if not was_visible:
        return []
    return [KeyEvent(EventType.DELETE, key, 0 if after is None else after.version)]


def _document(record: Record | None) -> Document | None:
    return None if record is None else DOCUMENTS.decode(record)


def _lease_events(event: Event, key: str) -> list[KeyEvent]:
    before, after = _lease(event.previous), _lease(event.record)
    if before.lease_id == after.lease_id:
        return []
    events: list[KeyEvent] = []
    if before.lease_id and not before.is_hidden:
        # A grant finds a lease only if its time is over, and ends it in the same commit.
        is_expired = after.is_expired or bool(after.lease_id)
        events.append(_lease_event(EventType.EXPIRED if is_expired else EventType.RELEASED, key, before))
    if after.lease_id and not after.is_hidden:
        events.append(_lease_event(EventType.ACQUIRED, key, after))
    return events


def _lease_event(type: EventType, key: str, lease: Lease) -> KeyEvent:
    return KeyEvent(
        type,
        key,
        owner=lease.owner,
        fencing_token=lease.fencing_token,
        expires_at_ms=lease.expires_at_ms if type is EventType.ACQUIRED else 0,
    )


def _lease(record: Record | None) -> Lease:
    return _NO_LEASE if record is None else LEASES.decode(record)
