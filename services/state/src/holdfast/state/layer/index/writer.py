"""The index follows the documents: what a publish changes is written in the publish's own commit."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.state.layer.index.summaries import Summaries
from holdfast.state.layer.index.terms import NOTHING, ONLY_PARTIAL, PARTIAL, Terms
from holdfast.state.layer.query.engine import Engine, preferred_by_default
from holdfast.state.layer.records import is_large, is_visible
from holdfast.state.layer.records_pb2 import Document, IndexFormat, IndexProgress, IndexState
from holdfast.storage.codec.encoded import term_secret
from holdfast.storage.keys import next_key, pack
from holdfast.storage.port import Store, Transaction, View
from holdfast.storage.tables import Table
from holdfast.txn.layer.port import Member

# Writes of one decision for the index: a batch has 10,000 keys, and attachments may take 6,000 of them.
WRITES_MAX: Final = 2_500
_CACHED_DOCUMENTS: Final = 2048
_CACHED_BYTES: Final = 16 << 20
_ENTRY_BYTES: Final = 72  # What one takes in memory besides its bytes: the object, and its place in a set.


class DocumentChange(NamedTuple):
    """What a decision makes of a key."""

    member: Member
    before: Document
    after: Document


@lru_cache(maxsize=1024)
def index_prefix(namespace: str) -> bytes:
    return pack(("index", namespace))


def index_key(prefix: bytes, entry: bytes, key: str) -> bytes:
    """`prefix` is that of the namespace."""
    return b"%b%bA%b\0" % (prefix, entry, key.encode())


def index_keys(member: Member, entries: Iterable[bytes]) -> list[bytes]:
    prefix, suffix = index_prefix(member.namespace), b"A%b\0" % member.key.encode()
    return [prefix + entry + suffix for entry in entries]


class KnownEntries:
    """The entries of the documents that were published last, by ETag; bounded in number and in bytes."""

    def __init__(self) -> None:
        self._by_etag: OrderedDict[str, tuple[frozenset[bytes], int]] = OrderedDict()
        self._size_bytes = 0

    def get(self, etag: str) -> frozenset[bytes] | None:
        known = self._by_etag.get(etag)
        return None if known is None else known[0]

    def keep(self, etag: str, entries: frozenset[bytes]) -> None:
        """Of a document that is not known yet."""
        size_bytes = _ENTRY_BYTES * len(entries) + sum(map(len, entries))
        self._by_etag[etag] = entries, size_bytes
        self._size_bytes += size_bytes
        while self._size_bytes > _CACHED_BYTES or len(self._by_etag) > _CACHED_DOCUMENTS:
            _, (_, dropped_bytes) = self._by_etag.popitem(last=False)
            self._size_bytes -= dropped_bytes


class IndexWriter:
    """Writes the index of one store."""

    def __init__(self, store: Store) -> None:
        self.states = IndexStates(store)
        self.terms = Terms(term_secret(store))
        self.summaries = Summaries(store, self.terms.format)
        self._known = KnownEntries()

    def publish(self, tx: Transaction, changes: Sequence[DocumentChange]) -> None:
        """What a decision changes, up to what fits into its commit."""
        left = WRITES_MAX
        for change in changes:
            namespace = change.member.namespace
            phase = self.states.get(tx, namespace).phase
            is_indexed = phase in (IndexState.READY, IndexState.BUILDING)
            if is_large(change.before) or is_large(change.after):
                self._publish_large(tx, change, is_indexed=is_indexed)
            if not is_indexed:
                continue
            added, removed = self._difference(change, left, is_built=phase == IndexState.READY)
            if len(added) + len(removed) > left:
                # What is stale can't be taken out in this commit: the whole index of the namespace is made again.
                self.states.enter(tx, namespace, IndexState.CLEARING, is_wanted=True)
                continue
            left -= len(added) + len(removed)
            new = index_keys(change.member, added)
            # Of a built index the entries that a document did not have are not there, but for the mark that stays.
            if phase == IndexState.READY and PARTIAL not in added:
                if new:
                    tx.put_all_fresh(new)
            else:
                for key in new:
                    tx.put(key, b"")
            for key in index_keys(change.member, removed):
                tx.delete(key)

    def _publish_large(self, tx: Transaction, change: DocumentChange, *, is_indexed: bool) -> None:
        """A summary takes long to make, so it follows the commit; until it is there, queries read the document."""
        is_summarized = is_indexed and is_large(change.after) and is_visible(change.member.key, change.after)
        if not is_summarized:
            self.summaries.forget(tx, change.member)
        elif change.before.etag != change.after.etag or change.before.is_hidden:
            self.summaries.want(tx, change.member)

    def add(self, tx: Transaction, member: Member, document: Document) -> int:
        """Everything about a document that was published before there was an index; the number of writes."""
        if is_large(document) and is_visible(member.key, document):
            self.summaries.want(tx, member)
        entries = self._entries(member.key, document)
        for key in index_keys(member, entries):
            tx.put(key, b"")
        return len(entries)

    def _difference(
        self, change: DocumentChange, left: int, *, is_built: bool
    ) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """What is to be added and removed. Before the index is built, it is not known what of the old is there."""
        old, new = (
            self._entries(change.member.key, change.before),
            self._entries(change.member.key, change.after),
        )
        if old is new and is_built:
            return NOTHING, NOTHING
        added, removed = new - old if is_built else new, old - new
        if added and len(added) + len(removed) > left:
            # The mark stays for good, and costs queries no more than a look at this document.
            return ONLY_PARTIAL, old - ONLY_PARTIAL
        return added, removed

    def _entries(self, key: str, document: Document) -> frozenset[bytes]:
        if not is_visible(key, document):
            return NOTHING
        if is_large(document):
            return ONLY_PARTIAL  # Reading it would take longer than a publish may; its summary follows.
        known = self._known.get(document.etag)
        if known is None:
            known = self.terms.of_text(document.content.inline)
            self._known.keep(document.etag, known)
        return known


STATES = Table("indexinfo", IndexState)
PROGRESS = Table("indexprogress", IndexProgress)
FORMATS = Table("indexinfo", IndexFormat)
_STATE: Final = "state"
_FORMAT: Final = "format"
_PAGE_NAMESPACES: Final = 500
_WORKING: Final = (IndexState.CLEARING, IndexState.BUILDING)


class IndexStates:
    """The phases of all namespaces of one store."""

    def __init__(self, store: Store) -> None:
        is_wanted = preferred_by_default(store) is Engine.INDEX
        self._default = IndexState(
            phase=IndexState.READY if is_wanted else IndexState.OFF, is_wanted=is_wanted
        )

    def key(self, namespace: str) -> bytes:
        return STATES.key(_STATE, namespace)

    def get(self, view: View, namespace: str) -> IndexState:
        """Not to be changed. A namespace without a state was never turned on or off since its first document."""
        return STATES.get(view, _STATE, namespace) or self._default

    def want(self, tx: Transaction, namespace: str, *, is_wanted: bool) -> None:
        """Turn the index of a namespace on or off."""
        state = self.get(tx, namespace)
        if state.is_wanted == is_wanted:
            return
        if is_wanted and state.phase == IndexState.OFF:
            self.enter(tx, namespace, IndexState.BUILDING, is_wanted=True)
        else:
            self.enter(tx, namespace, IndexState.CLEARING, is_wanted=is_wanted)

    def enter(
        self, tx: Transaction, namespace: str, phase: IndexState.Phase.ValueType, *, is_wanted: bool
    ) -> None:
        """A phase begins, and its progress with it."""
        STATES.put(tx, IndexState(phase=phase, is_wanted=is_wanted), _STATE, namespace)
        PROGRESS.delete(tx, namespace)

    def progress(self, view: View, namespace: str) -> IndexProgress:
        return PROGRESS.get(view, namespace) or IndexProgress()

    def put_progress(self, tx: Transaction, namespace: str, progress: IndexProgress) -> None:
        PROGRESS.put(tx, progress, namespace)

    def working(self, view: View, after: str) -> tuple[list[str], str]:
        """Namespaces whose phase has work to do, from one page of all states, and where the next page begins."""
        start = next_key(STATES.key(_STATE, after)) if after else None
        rows = STATES.range(view, _STATE, limit=_PAGE_NAMESPACES, start=start)
        names = [str(row.parts[1]) for row in rows if row.message.phase in _WORKING]
        return names, str(rows[-1].parts[1]) if len(rows) == _PAGE_NAMESPACES else ""

    def format(self, view: View) -> str:
        """How the entries of this store were made; empty: not known."""
        found = FORMATS.get(view, _FORMAT)
        return "" if found is None else found.name

    def put_format(self, tx: Transaction, name: str) -> None:
        FORMATS.put(tx, IndexFormat(name=name), _FORMAT)

    def bounds(self) -> tuple[bytes, bytes]:
        """Where phases and format are, for a watch."""
        return STATES.bounds()
