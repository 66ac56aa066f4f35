"""What one process knows of a queue: the messages that may leave next, and those that are out.

The store has them all; memory holds a window. Per priority there may be a horizon: everything in the store up to it is
in the window, what lies behind it is not, and has to be read before anything behind it may leave. Without a horizon
the window is complete. So a queue costs by what is about to leave and what is out, however long it is.

    hidden --its time comes--> visible --pop--> handed --claimed--> out --lease over--> handed --offer--> visible
"""

import heapq
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from holdfast.queue.layer.records_pb2 import MessageState, QueueMessage

SLACK_ENTRIES = 10_000


class EntryStatus(Enum):
    """Where a message of the window stands."""

    HIDDEN = 1
    VISIBLE = 2
    HANDED = 3
    OUT = 4


class Order(NamedTuple):
    """The order of delivery; within one priority, the order of the store."""

    priority: int
    visible_at_ms: int
    message_id: str


class Stream(Protocol):
    """A consumer that may have only so many deliveries out at a time; told when one of them ends."""

    def ended(self, message_id: str) -> None: ...


class Entry:
    """One message: the record that holds its state, as this process last saw it."""

    __slots__ = ("key", "message", "message_id", "revision", "state", "status", "stream")

    def __init__(
        self,
        message_id: str,
        key: bytes,
        revision: int,
        state: MessageState,
        message: QueueMessage | None = None,
    ) -> None:
        self.message_id = message_id
        self.key = key
        self.revision = revision
        self.state = state
        self.message = message
        self.status = EntryStatus.HIDDEN
        self.stream: Stream | None = None

    @property
    def due_ms(self) -> int:
        """From when on no consumer holds it."""
        return self.state.expires_at_ms if self.state.lease_id else self.state.visible_at_ms

    @property
    def order(self) -> Order:
        return Order(self.state.priority, self.due_ms, self.message_id)


class Window:
    """The entries of one queue. Heaps may hold what is no longer true; the dict of entries says what is."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max  # Per priority; twice as many are cut back to it.
        self._entries: dict[str, Entry] = {}
        self._visible: list[Order] = []
        self._due: list[tuple[int, str]] = []
        self._horizons: dict[int, Order] = {}
        self._waiting: dict[int, int] = {}  # By priority: ready in the store, and neither handed nor out.
        self.out = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, message_id: str) -> Entry | None:
        return self._entries.get(message_id)

    # -- what the store says

    def add(self, entry: Entry, now_ms: int) -> None:
        """It is ready or taken, as its state says. An older one, or one behind the horizon, is left out."""
        known = self._entries.get(entry.message_id)
        if known is not None:
            if known.revision >= entry.revision:
                return
            if known.status is EntryStatus.OUT and known.state.lease_id == entry.state.lease_id:
                self.extend(known, entry.state, entry.revision)
                return
            self._remove(known)
        if entry.state.lease_id:
            self._add_out(entry)
            return
        horizon = self._horizons.get(entry.state.priority)
        if horizon is None or entry.order <= horizon:
            self._add_waiting(entry, now_ms)

    def taken(self, entry: Entry, key: bytes, state: MessageState, revision: int) -> None:
        """What was handed out is out now, also if it was offered or forgotten since: its client had hung up."""
        known = self._entries.get(entry.message_id)
        if known is not None and known is not entry and known.revision >= revision:
            return
        if known is not None:
            self._remove(known)
        entry.key = key
        entry.state = state
        entry.revision = revision
        self._add_out(entry)

    def extend(self, entry: Entry, state: MessageState, revision: int) -> None:
        """The lease of one that is out ends at another time."""
        known_due_ms = entry.due_ms
        entry.state = state
        entry.revision = revision
        if entry.due_ms < known_due_ms:
            heapq.heappush(self._due, (entry.due_ms, entry.message_id))

    def forget(self, message_id: str) -> None:
        """It is gone, or no longer where it was."""
        entry = self._entries.get(message_id)
        if entry is not None:
            self._remove(entry)

    def end_streams(self) -> None:
        """For a window that is no longer in use."""
        for entry in self._entries.values():
            self._end_stream(entry)

    def lift_horizon(self, priority: int) -> None:
        """What follows is a page that was read behind it."""
        self._horizons.pop(priority, None)

    def set_horizon(self, horizon: Order) -> None:
        """Everything up to here was added, and there may be more behind it."""
        known = self._horizons.get(horizon.priority, horizon)
        self._horizons[horizon.priority] = min(known, horizon)

    # -- what leaves

    def advance(self, now_ms: int) -> list[Entry]:
        """Let time pass. Returns those whose lease ran out: they are handed, until `offer`, `add` or `forget`."""
        expired: list[Entry] = []
        due = self._due
        while due and due[0][0] <= now_ms:
            entry_due_ms, message_id = heapq.heappop(due)
            entry = self._entries.get(message_id)
            if entry is None or entry.status not in (EntryStatus.HIDDEN, EntryStatus.OUT):
                continue
            if entry.due_ms > entry_due_ms:
                heapq.heappush(due, (entry.due_ms, message_id))
            elif entry.status is EntryStatus.OUT:
                self._lapse(entry)
                expired.append(entry)
            else:
                self._show(entry)
        return expired

    def offer(self, entry: Entry) -> None:
        """It was handed out and may leave after all."""
        if self._entries.get(entry.message_id) is entry and entry.status is EntryStatus.HANDED:
            self._count(entry, 1)
            self._show(entry)

    def head(self) -> Entry | None:
        """The one that leaves next, of those that are visible."""
        visible = self._visible
        while visible:
            order = visible[0]
            entry = self._entries.get(order.message_id)
            if (
                entry is not None
                and entry.status is EntryStatus.VISIBLE
                and entry.due_ms == order.visible_at_ms
            ):
                return entry
            heapq.heappop(visible)
        return None

    def pop(self) -> Entry | None:
        """Hand out the head. It comes back as taken by `add`, by `offer`, or not at all by `forget`."""
        entry = self.head()
        if entry is not None:
            heapq.heappop(self._visible)
            self._count(entry, -1)
            entry.status = EntryStatus.HANDED
        return entry

    def gap(self, now_ms: int) -> Order | None:
        """The horizon behind which something may lie that has to leave before the head."""
        if not self._horizons:
            return None
        head = self.head()
        for _, horizon in sorted(self._horizons.items()):
            if head is not None and head.order < horizon:
                return None
            if horizon.visible_at_ms <= now_ms:
                return horizon
        return None

    def next_due_ms(self, now_ms: int) -> int | None:
        """When time, not a consumer, makes the next one leave its place, or makes a gap."""
        due_ms = self._due[0][0] if self._due else None
        if not self._horizons:
            return due_ms
        times_ms = [h.visible_at_ms for h in self._horizons.values() if h.visible_at_ms > now_ms]
        return min([*times_ms, *([] if due_ms is None else [due_ms])], default=None)

    # -- small parts

    def _add_waiting(self, entry: Entry, now_ms: int) -> None:
        self._entries[entry.message_id] = entry
        entry.status = EntryStatus.HIDDEN
        self._count(entry, 1)
        if entry.due_ms <= now_ms:
            self._show(entry)
        else:
            self._push_due(entry)
        if self._waiting[entry.state.priority] > 2 * self._size_max:
            self._cut_back(entry.state.priority)

    def _add_out(self, entry: Entry) -> None:
        self._entries[entry.message_id] = entry
        entry.status = EntryStatus.OUT
        entry.message = None  # Read again in the rare case that it is delivered again.
        self.out += 1
        self._push_due(entry)

    def _lapse(self, entry: Entry) -> None:
        self.out -= 1
        entry.status = EntryStatus.HANDED
        self._end_stream(entry)

    def _show(self, entry: Entry) -> None:
        entry.status = EntryStatus.VISIBLE
        heapq.heappush(self._visible, entry.order)
        # Entries that other processes took stay until they reach the head: for ever if no consumer waits.
        if len(self._visible) > 2 * len(self._entries) + SLACK_ENTRIES:
            self._visible = [e.order for e in self._entries.values() if e.status is EntryStatus.VISIBLE]
            heapq.heapify(self._visible)

    def _push_due(self, entry: Entry) -> None:
        heapq.heappush(self._due, (entry.due_ms, entry.message_id))
        if len(self._due) > 2 * len(self._entries) + SLACK_ENTRIES:
            self._due = [
                (known.due_ms, known.message_id)
                for known in self._entries.values()
                if known.status in (EntryStatus.HIDDEN, EntryStatus.OUT)
            ]
            heapq.heapify(self._due)

    def _cut_back(self, priority: int) -> None:
        waiting = sorted(
            entry.order
            for entry in self._entries.values()
            if entry.state.priority == priority and self._is_waiting(entry)
        )
        self.set_horizon(waiting[self._size_max - 1])  # What the window lacks already, it lacks still.
        for order in waiting[self._size_max :]:
            del self._entries[order.message_id]
        self._waiting[priority] = self._size_max

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.message_id]
        if entry.status is EntryStatus.OUT:
            self.out -= 1
        elif entry.status is not EntryStatus.HANDED:
            self._count(entry, -1)
        self._end_stream(entry)

    def _end_stream(self, entry: Entry) -> None:
        if entry.stream is not None:
            entry.stream.ended(entry.message_id)
            entry.stream = None

    def _count(self, entry: Entry, change: int) -> None:
        if not entry.state.lease_id:  # What is taken in the store is bounded by how many may be out.
            priority = entry.state.priority
            self._waiting[priority] = self._waiting.get(priority, 0) + change

    @staticmethod
    def _is_waiting(entry: Entry) -> bool:
        return not entry.state.lease_id and entry.status in (EntryStatus.HIDDEN, EntryStatus.VISIBLE)
