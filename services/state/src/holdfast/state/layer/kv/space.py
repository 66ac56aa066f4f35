"""The key space as an operation sees it: as it is in the store, and over it what the operation itself has changed."""

from holdfast.state.layer.kv.errors import KvLeaseNotFound, RevisionCompacted, RevisionInFuture
from holdfast.state.layer.kv.operation import KeyValue
from holdfast.state.layer.kv.records import (
    HISTORY_PAGE,
    INLINE_BYTES_MAX,
    LEASE_KEYS,
    LEASES,
    PIECE_BYTES,
    PROGRESS,
    Entry,
    MoreThanAPage,
    bounds_of,
    entries,
    event_of,
    is_within,
    key_of,
    key_value,
    log_bounds,
    log_key,
    note_earlier,
    piece_keys,
    plain_key,
    read_progress,
    record_of,
    value_of,
)
from holdfast.state.layer.records_pb2 import KvEvent, KvRecord
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction, View


class Space:
    """Reads, at the revision that the store has."""

    def __init__(self, view: View, *keys: bytes, is_one_page: bool = False) -> None:
        """`keys` are read next: a remote store fetches them together with the revision. With `is_one_page`, reads of more
        than a page raise MoreThanAPage."""
        self._view = view
        self._is_one_page = is_one_page
        if keys:
            view.prefetch(lambda: [PROGRESS, *map(key_of, keys)])
        self._progress = progress = read_progress(view)
        self.base = progress.revision
        self.compacted = progress.compacted

    @property
    def revision(self) -> int:
        """What a read sees: the next one once something was changed."""
        return self.base

    def get(self, key: bytes) -> Entry | None:
        record = self._view.get(key_of(key))
        return None if record is None else Entry(key, record_of(record.value), record.value)

    def find(self, key: bytes, range_end: bytes) -> list[Entry]:
        """The keys of a range, in their order."""
        if not range_end:
            entry = self.get(key)
            return [] if entry is None else [entry]
        return entries(self._view, *bounds_of(key, range_end), is_one_page=self._is_one_page)

    def find_at(self, key: bytes, range_end: bytes, revision: int) -> list[Entry]:
        """The same as of an earlier revision: what changed since is taken back."""
        if revision > self.base:
            raise RevisionInFuture
        if revision < self.compacted:
            raise RevisionCompacted
        found = {entry.key: entry for entry in self.find(key, range_end)}
        if not range_end and found and found[key].record.mod_revision <= revision:
            return list(found.values())
        for changed, previous in self._changed_since(key, range_end, revision).items():
            if previous:
                found[changed] = Entry(changed, record_of(previous), previous)
            else:
                found.pop(changed, None)
        return [found[one] for one in sorted(found)]

    def value(self, entry: Entry) -> bytes:
        return value_of(self._view, entry.record)

    def key_value(self, entry: Entry) -> KeyValue:
        return key_value(entry.key, entry.record, self.value(entry))

    def _changed_since(self, key: bytes, range_end: bytes, revision: int) -> dict[bytes, bytes]:
        """The record that each key of a range had then which was changed since; empty: it was not there."""
        earlier: dict[bytes, bytes] = {}
        start, end = log_bounds(revision + 1)
        while True:
            page = self._view.range(start, end, limit=HISTORY_PAGE)
            note_earlier(earlier, (event_of(record.value) for record in page), key, range_end)
            if len(page) < HISTORY_PAGE:
                return earlier
            if self._is_one_page:
                raise MoreThanAPage
            start = page[-1].key + b"\0"


class SpaceChange(Space):
    """One operation that may write. What it changes becomes one revision with `finish`, or nothing if it is dropped."""

    def __init__(self, tx: Transaction, *keys: bytes) -> None:
        super().__init__(tx, *keys)
        self.tx = tx
        self.events: list[KvEvent] = []
        self._latest: dict[bytes, Entry | None] = {}
        self._values: dict[int, bytes] = {}
        self._attached: dict[tuple[int, bytes], bool] = {}

    @property
    def revision(self) -> int:
        return self.base + bool(self.events)

    def get(self, key: bytes) -> Entry | None:
        return self._latest[key] if key in self._latest else super().get(key)

    def find(self, key: bytes, range_end: bytes) -> list[Entry]:
        found = super().find(key, range_end)
        if not range_end or not self._latest:
            return found
        merged = {entry.key: entry for entry in found}
        for changed, entry in self._latest.items():
            if not is_within(changed, key, range_end):
                continue
            if entry is None:
                merged.pop(changed, None)
            else:
                merged[changed] = entry
        return [merged[one] for one in sorted(merged)]

    def find_some(self, key: bytes, range_end: bytes, limit: int) -> list[Entry]:
        """The first keys of a range, without reading all of it."""
        start, end = bounds_of(key, range_end)
        changed = {one: entry for one, entry in self._latest.items() if is_within(one, key, range_end)}
        found: dict[bytes, Entry] = {}
        last = None
        page_limit = min(limit + len(changed), RANGE_LIMIT_MAX)
        while end is None or start < end:
            page = self._view.range(start, end, limit=page_limit)
            unchanged = [entry for entry in map(Entry.of, page) if entry.key not in changed]
            found |= {entry.key: entry for entry in unchanged}
            if len(page) < page_limit:
                break
            if len(found) >= limit:
                last = plain_key(page[-1].key)
                break
            start = page[-1].key + b"\0"
        found |= {
            one: entry
            for one, entry in changed.items()
            if entry is not None and (last is None or one <= last)
        }
        return [found[one] for one in sorted(found)[:limit]]

    def _changed_since(self, key: bytes, range_end: bytes, revision: int) -> dict[bytes, bytes]:
        earlier = super()._changed_since(key, range_end, revision)
        note_earlier(earlier, self.events, key, range_end)
        return earlier

    def has_any(self, key: bytes, range_end: bytes) -> bool:
        """Whether a range has a key, without reading all of it."""
        return bool(self.find_some(key, range_end, 1))

    def value(self, entry: Entry) -> bytes:
        record = entry.record
        if record.value_bytes and record.mod_revision > self.base:
            return self._values[record.sub]
        return super().value(entry)

    def put(self, key: bytes, value: bytes, lease: int, before: Entry | None) -> None:
        """Write a key of which `before` is what `get` said."""
        if lease and (before is None or before.record.lease != lease) and LEASES.get(self.tx, lease) is None:
            raise KvLeaseNotFound
        revision, sub = self.base + 1, len(self.events)
        record = KvRecord(mod_revision=revision)
        if before is None:
            record.create_revision, record.version = revision, 1
        else:
            record.create_revision = before.record.create_revision
            record.version = before.record.version + 1
        if lease:
            record.lease = lease
        if len(value) <= INLINE_BYTES_MAX:
            record.value = value
        else:
            record.value_bytes, record.sub = len(value), sub
            self._values[sub] = value
        raw = record.SerializeToString()
        self._change(key, Entry(key, record, raw), before)

    def delete(self, entry: Entry) -> None:
        self._change(entry.key, None, entry)

    def _change(self, key: bytes, after: Entry | None, before: Entry | None) -> None:
        self._latest[key] = after
        event = KvEvent(key=key)
        if after is not None:
            event.record = after.raw
        if before is not None:
            event.previous = before.raw
        self.events.append(event)
        left = before.record.lease if before is not None else 0
        taken = after.record.lease if after is not None else 0
        if left != taken:
            if left:
                self._attached[left, key] = False
            if taken:
                self._attached[taken, key] = True

    def finish(self) -> None:
        """Write what was changed, if anything was, as the next revision."""
        if not self.events:
            return
        tx = self.tx
        revision = self.base + 1
        for key, entry in self._latest.items():
            if entry is None:
                tx.delete(key_of(key))
            elif entry.record.create_revision == revision:
                tx.put_new(key_of(key), entry.raw)
            else:
                tx.put(key_of(key), entry.raw)
        for attachment, is_attached in self._attached.items():
            if is_attached:
                tx.put(LEASE_KEYS.key(*attachment), b"")
            else:
                tx.delete(LEASE_KEYS.key(*attachment))
        self.events[0].count = len(self.events)
        for sub, event in enumerate(self.events):
            value = self._values.get(sub)
            if value is not None:
                self._put_value(event, value)
            tx.put_fresh(log_key(revision, sub), event.SerializeToString())
        progress = self._progress
        progress.revision = revision
        tx.put(PROGRESS, progress.SerializeToString())

    def _put_value(self, event: KvEvent, value: bytes) -> None:
        if len(value) <= PIECE_BYTES:
            event.value = value
            return
        for piece, at in enumerate(piece_keys(record_of(event.record))):
            self.tx.put_fresh(at, value[piece * PIECE_BYTES : (piece + 1) * PIECE_BYTES])
