"""Whether the kept history is whole: readable, in order, without holes, and ending in the records as they are.

Revisions alone do not show a hole, because failed writes burn numbers. The chain of each key does: the record before a
change is the one that the last change of this key left, or is older than the history; and what the last change left is
the record of today. A change that is missing breaks the chain of every key that it touched.
"""

import asyncio
import zlib
from typing import NamedTuple

from holdfast.storage.codec.descriptor import root_id_of
from holdfast.storage.codec.encoded import ValueCodec, is_bare
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.maintenance.progress import Advance, silent
from holdfast.storage.port import Event, Record, Snapshot

KEYS_PER_PASS = 200_000  # Kept in memory at once; a longer history is walked several times.


class _Mark(NamedTuple):
    """What is remembered of a record."""

    create_revision: int
    mod_revision: int
    version: int
    value_crc: int


class HistoryCheck:
    """One walk over a snapshot. `run` raises what is wrong, the first of it."""

    def __init__(self, snapshot: Snapshot, keyring: Keyring | None = None, advance: Advance = silent) -> None:
        self._snapshot = snapshot
        self._keyring = keyring
        self._values = None if keyring is None else ValueCodec(Codec(keyring))
        self._advance = advance

    async def run(self) -> None:
        changes = await self._check_each()
        passes = 1 + changes // KEYS_PER_PASS
        for turn in range(passes):
            await self._check_chains(turn, passes)

    async def _check_each(self) -> int:
        """Every change by itself, and their order; how many there are."""
        count = 0
        last_revision = self._snapshot.compacted_revision
        async for page in self._snapshot.changes():
            for event in page:
                if not last_revision <= event.revision <= self._snapshot.revision:
                    raise StoreCorrupt(
                        f"the history has revision {event.revision} after {last_revision}, and the store ends at "
                        f"{self._snapshot.revision}; restore a backup"
                    )
                last_revision = event.revision
                _check_event(event)
                self._open(event)
                self._advance(0, 0 if event.record is None else len(event.record.value))
            count += len(page)
            await asyncio.sleep(0)
        return count

    def _open(self, event: Event) -> None:
        """Decrypt it, unless its root key was retired: a re-wrapped store keeps its history as it was written."""
        if self._values is None or self._keyring is None:
            return
        for record in (event.record, event.previous):
            if record is None or is_bare(record.key, record.value):
                continue
            if root_id_of(record.value) in self._keyring.key_ids:
                self._values.open(record)

    async def _check_chains(self, turn: int, passes: int) -> None:
        """The keys of one turn: from change to change, and on to the records."""
        newest: dict[bytes, _Mark | None] = {}
        async for page in self._snapshot.changes():
            for event in page:
                if zlib.crc32(event.key) % passes == turn:
                    self._follow(newest, event)
            await asyncio.sleep(0)
        async for records in self._snapshot.records():
            for record, _ in records:
                if zlib.crc32(record.key) % passes == turn:
                    self._arrive(newest, record)
            await asyncio.sleep(0)
        for key, mark in newest.items():
            if mark is not None:
                raise StoreCorrupt(
                    f"the record of key {key!r} is missing: the history has it, changed by revision "
                    f"{mark.mod_revision}; restore a backup"
                )

    def _follow(self, newest: dict[bytes, _Mark | None], event: Event) -> None:
        previous = None if event.previous is None else _mark(event.previous)
        if event.key not in newest:
            self._check_is_older(event.previous)
        elif newest[event.key] != previous:
            raise StoreCorrupt(
                f"the change of key {event.key!r} by revision {event.revision} does not go on where the history "
                "before it ended: it lacks a revision, or one was altered; restore a backup"
            )
        newest[event.key] = None if event.record is None else _mark(event.record)

    def _arrive(self, newest: dict[bytes, _Mark | None], record: Record) -> None:
        if record.key not in newest:
            self._check_is_older(record)
        elif newest.pop(record.key) != _mark(record):
            raise StoreCorrupt(
                f"the record of key {record.key!r} (revision {record.mod_revision}) does not go on where the history "
                "ends: it lacks a revision, or one was altered; restore a backup"
            )

    def _check_is_older(self, record: Record | None) -> None:
        if record is not None and record.mod_revision > self._snapshot.compacted_revision:
            raise StoreCorrupt(
                f"the history lacks revision {record.mod_revision}, which changed key {record.key!r}; restore a backup"
            )


def _mark(record: Record) -> _Mark:
    return _Mark(record.create_revision, record.mod_revision, record.version, zlib.crc32(record.value))


def _check_event(event: Event) -> None:
    """What one change says of itself must fit together."""
    revision, key, record, previous = event
    before = 0 if previous is None else previous.version
    is_right = record is not None or previous is not None
    if previous is not None:
        is_right &= previous.version >= 1 and previous.create_revision <= previous.mod_revision < revision
    if record is not None:
        created_by = revision if previous is None else previous.create_revision
        is_right &= record[2:] == (created_by, revision, before + 1)
    if not is_right:
        raise StoreCorrupt(
            f"the change of key {key!r} by revision {revision} contradicts itself; restore a backup"
        )
