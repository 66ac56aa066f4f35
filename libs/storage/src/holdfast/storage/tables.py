"""A table joins a key prefix with the protobuf message its records hold, so that layers speak in messages, not bytes.

Messages keep the fields they do not know, so a record that a newer version wrote survives a read, a change and a
write by this one.
"""

from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.keys import Element, pack, unpack
from holdfast.storage.port import BlobRef, Record, Store, Transaction, View
from holdfast.storage.records_pb2 import BlobRef as BlobRefMessage

M = TypeVar("M", bound=Message)


class Row(NamedTuple, Generic[M]):
    """One record of a table: the parts of its key after the table's name, its message, and the record itself."""

    parts: tuple[Element, ...]
    message: M
    record: Record


class Subspace:
    """The keys that begin with `name`. Records in one that is no table are empty: their keys say it all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._prefix = pack((name,))
        self._string_prefix = self._prefix + b"A"

    def key(self, *parts: Element) -> bytes:
        """The same as `pack((name, *parts))`, several times as fast for what nearly every key consists of: strings."""
        try:
            joined = "\0A".join(parts).encode()  # type: ignore[arg-type]  # The TypeError of anything else is the answer.
        except TypeError:
            return self._prefix + pack(parts)
        if joined.count(0) != len(parts) - 1:  # Also when there are no parts.
            return self._prefix + pack(parts)
        return self._string_prefix + joined + b"\0"

    def bounds(self, *prefix: Element) -> tuple[bytes, bytes]:
        """The range of all records below this prefix, for a watch or an expectation."""
        start = self.key(*prefix)
        return start + b"\x00", start + b"\xff"  # As `prefix_range` has it.


class Table(Subspace, Generic[M]):
    """The records whose key begins with `name`, each holding one `message_class`."""

    def __init__(self, name: str, message_class: type[M]) -> None:
        super().__init__(name)
        self._message_class = message_class
        self._parse = message_class.FromString

    def decode(self, record: Record) -> M:
        """Raises StoreCorrupt if the value is no such message."""
        try:
            return self._parse(record.value)
        except DecodeError as error:
            name = self._message_class.DESCRIPTOR.name
            raise StoreCorrupt(f"record {record.key!r} holds no {name}") from error

    def row(self, record: Record) -> Row[M]:
        return Row(unpack(record.key)[1:], self.decode(record), record)

    def get(self, view: View, *parts: Element) -> M | None:
        record = view.get(self.key(*parts))
        return None if record is None else self.decode(record)

    async def fetch(self, store: Store, *parts: Element) -> M | None:
        """The same, outside of a function of `transact` or `view`."""
        record = await store.get(self.key(*parts))
        return None if record is None else self.decode(record)

    def put(self, tx: Transaction, message: M, *parts: Element, blobs: tuple[str, ...] = ()) -> None:
        # Deterministic, so that writing the same message twice writes the same bytes.
        tx.put(self.key(*parts), message.SerializeToString(deterministic=True), blobs=blobs)

    def delete(self, tx: Transaction, *parts: Element) -> None:
        tx.delete(self.key(*parts))

    def range(
        self,
        view: View,
        *prefix: Element,
        limit: int,
        reverse: bool = False,
        start: bytes | None = None,
        end: bytes | None = None,
    ) -> list[Row[M]]:
        """Up to `limit` rows below the prefix; `start` and `end` narrow that range to go on after an earlier page."""
        first, last = self._narrowed(prefix, start, end)
        if first >= last:
            return []
        return [self.row(record) for record in view.range(first, last, limit=limit, reverse=reverse)]

    async def fetch_range(
        self,
        store: Store,
        *prefix: Element,
        limit: int,
        reverse: bool = False,
        start: bytes | None = None,
        end: bytes | None = None,
    ) -> list[Row[M]]:
        """The same, outside of a function of `transact` or `view`."""
        first, last = self._narrowed(prefix, start, end)
        if first >= last:
            return []
        return [self.row(record) for record in await store.range(first, last, limit=limit, reverse=reverse)]

    def _narrowed(
        self, prefix: tuple[Element, ...], start: bytes | None, end: bytes | None
    ) -> tuple[bytes, bytes]:
        first, last = self.bounds(*prefix)
        return first if start is None else max(first, start), last if end is None else min(last, end)


def blob_message(ref: BlobRef) -> BlobRefMessage:
    """A reference as records keep it."""
    return BlobRefMessage(id=ref.id, size_bytes=ref.size_bytes, sha256=ref.sha256, descriptor=ref.descriptor)


def blob_ref(message: BlobRefMessage) -> BlobRef:
    """A reference as blob stores take it."""
    return BlobRef(message.id, message.size_bytes, message.sha256, message.descriptor)
