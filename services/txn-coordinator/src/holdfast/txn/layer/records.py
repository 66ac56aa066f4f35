"""The records of the coordinator: transactions under way, markers of those that ended, and what is due when."""

from holdfast.storage.keys import pack, prefix_range, unpack
from holdfast.storage.port import Record, Transaction
from holdfast.storage.tables import Table
from holdfast.txn.layer.records_pb2 import TxnMarker, TxnRecord

RECORDS = Table("txn", TxnRecord)
MARKERS = Table("txnmark", TxnMarker)

_DUE = "txndue"
_MARKER_DUE = "txnmarkdue"


def due_bounds(until_ms: int | None = None) -> tuple[bytes, bytes]:
    """The transactions that are due by then, or all; the first one is due first."""
    return _bounds(_DUE, until_ms)


def marker_due_bounds(until_ms: int | None = None) -> tuple[bytes, bytes]:
    """The markers whose time is over by then, or all."""
    return _bounds(_MARKER_DUE, until_ms)


def _bounds(name: str, until_ms: int | None) -> tuple[bytes, bytes]:
    start, end = prefix_range((name,))
    return start, end if until_ms is None else pack((name, until_ms + 1))


class Due:
    """An entry of one of the two orders of time."""

    __slots__ = ("at_ms", "key", "txn_id")

    def __init__(self, record: Record) -> None:
        _, at_ms, txn_id = unpack(record.key)
        assert isinstance(at_ms, int)
        self.key = record.key
        self.at_ms = at_ms
        self.txn_id = str(txn_id)


def put_record(tx: Transaction, txn_id: str, record: TxnRecord, *, due_at_ms: int) -> None:
    if record.due_at_ms != due_at_ms:
        forget_due(tx, txn_id, record)
        record.due_at_ms = due_at_ms
        tx.put(pack((_DUE, due_at_ms, txn_id)), b"")
    RECORDS.put(tx, record, txn_id)


def delete_record(tx: Transaction, txn_id: str, record: TxnRecord) -> None:
    forget_due(tx, txn_id, record)
    RECORDS.delete(tx, txn_id)


def forget_due(tx: Transaction, txn_id: str, record: TxnRecord) -> None:
    if record.due_at_ms:
        tx.delete(pack((_DUE, record.due_at_ms, txn_id)))


def put_marker(tx: Transaction, txn_id: str, marker: TxnMarker) -> None:
    """An older marker of the same id leaves its place in the order behind; the sweep sees that and drops it."""
    MARKERS.put(tx, marker, txn_id)
    tx.put(pack((_MARKER_DUE, marker.expires_at_ms, txn_id)), b"")
