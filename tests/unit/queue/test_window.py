"""The window on a queue: what may leave next, what is out, and where the window ends."""

import sys

from holdfast.queue.layer.dispatch.window import Entry, EntryStatus, Order, Window
from holdfast.queue.layer.records_pb2 import MessageState


def ready(name: str, at_ms: int = 0, priority: int = 0, revision: int = 1) -> Entry:
    return Entry(name, b"ready", revision, MessageState(priority=priority, visible_at_ms=at_ms))


def taken(name: str, until_ms: int, revision: int = 2, lease_id: str = "lease") -> Entry:
    return Entry(name, b"taken", revision, MessageState(lease_id=lease_id, expires_at_ms=until_ms))


def window_of(*entries: Entry, size_max: int = 100, now_ms: int = 10) -> Window:
    window = Window(size_max)
    for entry in entries:
        window.add(entry, now_ms)
    return window


def popped(window: Window) -> list[str]:
    names: list[str] = []
    while (entry := window.pop()) is not None:
        names.append(entry.message_id)
    return names


def test_entries_leave_by_priority_then_time_then_id() -> None:
    window = window_of(ready("d", 2), ready("b", 1), ready("a", 2), ready("c", 9, priority=-1))

    assert popped(window) == ["c", "b", "a", "d"]


def test_what_is_hidden_leaves_when_its_time_has_come() -> None:
    window = window_of(ready("a", 20), now_ms=10)
    assert window.next_due_ms(10) == 20
    assert window.advance(19) == []
    assert window.pop() is None

    window.advance(20)

    assert popped(window) == ["a"]


def test_an_older_record_does_not_replace_a_newer_one() -> None:
    window = window_of(taken("a", 50, revision=5))

    window.add(ready("a", revision=4), 10)

    assert window.out == 1
    assert window.pop() is None


def test_a_lease_that_ran_out_is_handed_back_and_may_be_offered() -> None:
    window = window_of(taken("a", 50))

    [entry] = window.advance(50)

    assert (entry.status, window.out) == (EntryStatus.HANDED, 0)
    assert window.pop() is None
    window.offer(entry)
    assert popped(window) == ["a"]


def test_a_lease_that_was_extended_runs_out_later() -> None:
    window = window_of(taken("a", 50))
    window.add(taken("a", 90, revision=3), 10)

    assert window.advance(89) == []
    assert [entry.message_id for entry in window.advance(90)] == ["a"]


def test_a_lease_that_was_shortened_runs_out_earlier() -> None:
    window = window_of(taken("a", 50))
    window.add(taken("a", 30, revision=3), 10)

    assert [entry.message_id for entry in window.advance(30)] == ["a"]


def test_a_long_queue_is_cut_back_and_what_lies_behind_is_a_gap() -> None:
    entries = [ready(f"{number:03}", number) for number in range(9)]

    window = window_of(*entries, size_max=4, now_ms=100)

    assert len(window) == 4
    assert window.gap(100) is None
    assert popped(window) == ["000", "001", "002", "003"]
    assert window.gap(100) == Order(0, 3, "003")


def test_what_comes_behind_the_horizon_stays_in_the_store_only() -> None:
    window = window_of(ready("a", 1))
    window.set_horizon(Order(0, 5, "x"))

    window.add(ready("far", 6), 10)
    window.add(ready("near", 4), 10)

    assert popped(window) == ["a", "near"]


def test_a_message_of_a_lower_priority_waits_for_what_lies_behind_a_horizon() -> None:
    window = window_of(ready("low", 1, priority=5))
    window.set_horizon(Order(0, 3, "x"))

    assert window.gap(2) is None  # Behind it is nothing that may leave yet.
    assert window.gap(3) == Order(0, 3, "x")
    window.lift_horizon(0)
    assert window.gap(3) is None


def test_a_horizon_in_time_to_come_is_a_moment_to_look() -> None:
    window = window_of()
    window.set_horizon(Order(0, 30, "x"))

    assert window.next_due_ms(10) == 30
    assert window.next_due_ms(30) is None


def test_the_order_of_times_is_tidied_up_when_most_of_it_is_no_longer_true() -> None:
    window = Window(100)
    for number in range(25_000):
        window.add(taken(f"{number}", 1_000_000), 0)
        window.forget(f"{number}")

    assert window.out == 0
    assert window.advance(1_000_000) == []


class EndRecorder:
    """A stream that remembers what ended."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def ended(self, message_id: str) -> None:
        self.names.append(message_id)


def test_a_stream_is_told_once_when_its_delivery_ends() -> None:
    stream = EndRecorder()
    window = window_of(taken("a", 50), taken("b", 50), taken("c", 90))
    for entry in window:
        entry.stream = stream
    window.forget("a")
    window.advance(50)
    window.forget("b")
    window.add(taken("c", 95, revision=3), 10)

    assert stream.names == ["a", "b"]


def test_a_claim_that_ends_after_its_entry_was_offered_again_takes_it_out() -> None:
    entry = ready("a")
    window = window_of(entry)
    window.pop()
    window.offer(entry)

    window.taken(entry, b"taken", taken("a", 50).state, 2)

    assert (window.head(), window.out) == (None, 1)
    assert window.advance(50) == [entry]


def test_claims_that_end_late_do_not_wear_the_window_out() -> None:
    window = Window(2)
    for number in range(20):
        entry = ready(f"{number}")
        window.add(entry, 10)
        window.pop()
        window.offer(entry)
        window.taken(entry, b"taken", taken("a", 50).state, 2)
        window.forget(entry.message_id)

    window.add(ready("last"), 10)

    assert popped(window) == ["last"]


def test_a_claim_of_an_entry_that_was_forgotten_meanwhile_is_known_to_be_out() -> None:
    entry = ready("a")
    window = window_of(entry)
    window.pop()
    window = Window(100)  # Everything is read again.

    window.taken(entry, b"taken", taken("a", 50).state, 2)

    assert window.out == 1


def test_cutting_back_never_moves_the_horizon_away() -> None:
    window = window_of(*[ready(f"{at_ms}", at_ms) for at_ms in (6, 7, 8, 9)], size_max=2)
    window.set_horizon(Order(0, 5, "5"))

    window.add(ready("1", 1), 10)

    assert popped(window)[0] == "1"
    assert window.gap(10) == Order(0, 5, "5")


def test_the_order_of_delivery_is_tidied_up_when_most_of_it_is_no_longer_true() -> None:
    window = Window(100)
    window.add(ready("head", 0), 10)
    before_bytes = sizes(window)
    for number in range(50_000):
        window.add(ready(f"{number}", 1), 10)
        window.forget(f"{number}")

    assert sizes(window) - before_bytes < 30_000 * 8
    assert popped(window) == ["head"]


def sizes(window: Window) -> int:
    """What its lists take, without what is in them."""
    return sum(sys.getsizeof(part) for part in vars(window).values() if isinstance(part, list))
