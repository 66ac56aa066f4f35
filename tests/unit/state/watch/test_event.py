"""What a changed record means to those who watch its key."""

import pytest

from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.layer.records_pb2 import Document
from holdfast.state.layer.watch.event import EventType, KeyEvent, key_events
from holdfast.storage.port import Event, Record
from holdfast.txn.layer.port import Member

MEMBER = Member("default", "orders")
HELD = Lease(lease_id="l1", owner="worker", fencing_token=7, expires_at_ms=9_000)
FREE = Lease(fencing_token=7)
OVER = Lease(fencing_token=7, is_expired=True)
HIDDEN = Lease(lease_id="l2", owner="worker", fencing_token=8, expires_at_ms=9_000, is_hidden=True)
FIRST = Document(version=1, etag="e1")
SECOND = Document(version=2, etag="e2")
GONE = Document(version=3)
SECRET = Document(version=4, etag="e4", is_hidden=True)

ACQUIRED = KeyEvent(EventType.ACQUIRED, "orders", owner="worker", fencing_token=7, expires_at_ms=9_000)
RELEASED = KeyEvent(EventType.RELEASED, "orders", owner="worker", fencing_token=7)
EXPIRED = RELEASED._replace(type=EventType.EXPIRED)


def told(
    before: Lease | Document | None, after: Lease | Document | None, key: str = "orders"
) -> list[KeyEvent]:
    member = Member("default", key)
    table = LEASES if isinstance(before or after, Lease) else DOCUMENTS
    stored = table.key(*member)

    def record(message: Lease | Document | None) -> Record | None:
        return None if message is None else Record(stored, message.SerializeToString(), 1, 1, 1)

    return key_events(Event(2, stored, record(after), record(before)), member)


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (None, HELD, [ACQUIRED]),
        (FREE, HELD, [ACQUIRED]),
        (HELD, FREE, [RELEASED]),
        (HELD, OVER, [EXPIRED]),
        (OVER, HELD, [ACQUIRED]),
        (HELD, None, [RELEASED]),
        (FREE, None, []),
    ],
)
def test_leases_begin_and_end(before: Lease | None, after: Lease | None, events: list[KeyEvent]) -> None:
    assert told(before, after) == events


def test_a_lease_that_takes_the_place_of_another_tells_that_it_expired() -> None:
    after = Lease(lease_id="l2", owner="other", fencing_token=8, expires_at_ms=20_000)

    expired, acquired = told(HELD, after)

    assert expired == EXPIRED
    assert (acquired.type, acquired.owner, acquired.fencing_token) == (EventType.ACQUIRED, "other", 8)


def test_a_renewal_is_nothing() -> None:
    renewed = Lease()
    renewed.CopyFrom(HELD)
    renewed.expires_at_ms += 1000
    renewed.is_explicit = True

    assert told(HELD, renewed) == []


@pytest.mark.parametrize(("before", "after"), [(None, HIDDEN), (HIDDEN, FREE), (HIDDEN, OVER)])
def test_the_lease_of_a_hidden_key_is_not_told(before: Lease | None, after: Lease | None) -> None:
    assert told(before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (None, FIRST, [KeyEvent(EventType.PUT, "orders", 1, "e1")]),
        (FIRST, SECOND, [KeyEvent(EventType.PUT, "orders", 2, "e2")]),
        (SECOND, GONE, [KeyEvent(EventType.DELETE, "orders", 3)]),
        (SECOND, SECRET, [KeyEvent(EventType.DELETE, "orders", 4)]),
        (SECRET, Document(version=5, etag="e5"), [KeyEvent(EventType.PUT, "orders", 5, "e5")]),
        (SECOND, None, [KeyEvent(EventType.DELETE, "orders", 0)]),
        (GONE, SECOND, [KeyEvent(EventType.PUT, "orders", 2, "e2")]),
    ],
)
def test_documents_are_published_and_go(
    before: Document | None, after: Document | None, events: list[KeyEvent]
) -> None:
    assert told(before, after) == events


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, SECRET),
        (SECRET, SECRET),
        (SECRET, None),
        (GONE, None),
        (None, Document(version=1, attachment_count=1)),
        (SECOND, SECOND),
    ],
)
def test_what_queries_do_not_show_is_not_told(before: Document | None, after: Document | None) -> None:
    assert told(before, after) == []


def test_diagnostics_are_not_told() -> None:
    key = "lockd-diagnostics/store/verify"

    assert told(None, FIRST, key) == told(FIRST, None, key) == told(None, HELD, key) == []
