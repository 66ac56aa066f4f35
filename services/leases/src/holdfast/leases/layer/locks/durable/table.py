"""A table whose last steps can be taken back, because they could not be recorded, or were judged by what is no longer so.

While the steps of a key are under way nothing else is done to that key, so they are taken back in reverse, one by one. What
is not taken back is the end of a waiter: who gave up or is gone stays so.
"""

from collections.abc import Callable

from holdfast.leases.layer.locks.records import Enqueued, Holder, Lock, Refused, Session, Tell, Waiter
from holdfast.leases.layer.locks.table import LockTable
from holdfast.leases.layer.records_pb2 import LockRecord, LockSlot

Step = Callable[[], None]


class Steps:
    """What was done to one key since it was recorded last."""

    __slots__ = ("_undone_by", "ended", "handed_over", "is_recorded")

    def __init__(self) -> None:
        self._undone_by: list[Step] = []
        self.handed_over: list[tuple[Waiter, Holder]] = []
        """Grants of waiters, who are told when it is recorded."""
        self.ended = 0
        """Leases that were over."""
        self.is_recorded = True
        """Whether the record of the key says the same still."""

    def note(self, undo: Step, *, changes_record: bool = False) -> None:
        self._undone_by.append(undo)
        if changes_record:
            self.is_recorded = False

    def take_back(self) -> None:
        while self._undone_by:
            self._undone_by.pop()()
        self.handed_over.clear()


class DurableTable(LockTable):
    """Between two calls of `begin` every step is of one key."""

    _steps: Steps

    def begin(self) -> Steps:
        """The steps from now on."""
        self._steps = Steps()
        return self._steps

    # -- what the store says

    def load(self, name: bytes, record: LockRecord | None, now_s: float) -> None:
        """Let the key be as it is recorded. Holders that are known stay those of their session; nothing is granted."""
        lock = self._locks.get(name)
        if lock is None:
            if record is None:
                return
            lock = self._locks[name] = Lock(name, record.limit)
        slots = {}
        if record is not None:
            lock.limit = record.limit
            slots = {slot.token.hex().encode(): slot for slot in record.slots}
        for holder in [holder for token, holder in lock.holders.items() if token not in slots]:
            self._lose(holder)
        for token, slot in slots.items():
            self._load_slot(lock, token, slot)
        if lock.holders or lock.waiters:
            self._idle.pop(name, None)
        elif name not in self._idle:
            self._rest(lock, now_s)

    def _load_slot(self, lock: Lock, token: bytes, slot: LockSlot) -> None:
        holder = lock.holders.get(token)
        if holder is None:
            client = Session(0, slot.address)
            holder = Holder(lock, token, client, slot.ttl_s, 0.0, slot.granted_at_ms / 1000)
        else:
            self._forget_end(holder)
        holder.ttl_s, holder.ends_s = slot.ttl_s, slot.ends_at_ms / 1000
        self._put_back(holder)

    def expire_and_grant(self, name: bytes, now_s: float) -> None:
        """End the leases of a key that are over, and grant every free slot to the first waiters."""
        lock = self._locks.get(name)
        if lock is None:
            return
        self._expire(lock, now_s)
        if lock.waiters and len(lock.holders) < lock.limit:
            self._grant_waiters(lock, now_s)

    def leave(self, session: Session, name: bytes, now_s: float, *, keeps_leases: bool) -> None:
        """What `end_session` does, for one key."""
        session.enqueued.pop(name, None)
        for waiter in [waiter for waiter in session.waiters if waiter.lock.name == name]:
            self.cancel(waiter, now_s)
        if not keeps_leases:
            for holder in [holder for holder in session.holders if holder.lock.name == name]:
                self._free(holder, now_s)

    def idle(self, now_s: float, idle_s: float, limit: int) -> list[Lock]:
        """Those without holders and waiters for so long, longest first."""
        found: list[Lock] = []
        for lock in self._idle.values():
            if now_s - lock.idle_since_s <= idle_s or len(found) >= limit:
                break
            found.append(lock)
        return found

    # -- every step and how it is taken back

    def _opened(self, name: bytes, limit: int, now_s: float) -> Lock | Refused:
        is_new = name not in self._locks
        lock = super()._opened(name, limit, now_s)
        if is_new:
            self._steps.note(lambda: self.forget(name))
        return lock

    def _grant(self, lock: Lock, session: Session, ttl_s: int, now_s: float) -> Holder:
        holder = super()._grant(lock, session, ttl_s, now_s)
        self._steps.note(lambda: self._drop(holder), changes_record=True)
        return holder

    def _free(self, holder: Holder, now_s: float) -> None:
        if holder.token in holder.lock.holders:
            self._steps.note(lambda: self._put_back(holder), changes_record=True)
        super()._free(holder, now_s)

    def _restart(self, holder: Holder, ttl_s: int, now_s: float) -> None:
        before = holder.ttl_s, holder.ends_s

        def undo() -> None:
            self._forget_end(holder)
            holder.ttl_s, holder.ends_s = before
            self._note_end(holder)

        self._steps.note(undo, changes_record=True)
        super()._restart(holder, ttl_s, now_s)

    def _queue(
        self, lock: Lock, session: Session, ttl_s: int, now_s: float, tell: Tell | None = None
    ) -> Waiter:
        waiter = super()._queue(lock, session, ttl_s, now_s, tell)
        self._steps.note(lambda: self.cancel(waiter, now_s))
        return waiter

    def _hand_over(self, waiter: Waiter, holder: Holder) -> None:
        enqueued = waiter.enqueued
        if enqueued is None:
            self._steps.handed_over.append((waiter, holder))
        else:
            super()._hand_over(waiter, holder)
        self._steps.note(lambda: self._queue_again(waiter))

    def _queue_again(self, waiter: Waiter) -> None:
        if waiter.session.has_ended:
            return
        lock = waiter.lock
        lock.waiters[waiter] = None
        lock.waiters.move_to_end(waiter, last=False)
        waiter.session.waiters.add(waiter)
        self.waiters += 1
        if waiter.enqueued is not None:
            waiter.enqueued.holder, waiter.enqueued.waiter = None, waiter

    def _end_lease(self, holder: Holder, now_s: float, keeps: Enqueued | None = None) -> None:
        enqueued = holder.enqueued
        if enqueued is not None:
            self._note_enqueued(holder.session, holder.lock.name, enqueued)
        self._steps.ended += 1
        super()._end_lease(holder, now_s, keeps)

    def enqueue(
        self, session: Session, name: bytes, limit: int, ttl_s: int, now_s: float
    ) -> Holder | Refused | None:
        self._note_enqueued(session, name, session.enqueued.get(name))
        return super().enqueue(session, name, limit, ttl_s, now_s)

    def wait(
        self, session: Session, name: bytes, now_s: float, tell: Tell | None = None
    ) -> Holder | Waiter | Refused:
        self._note_enqueued(session, name, session.enqueued.get(name))
        return super().wait(session, name, now_s, tell)

    def release(self, name: bytes, token: bytes, now_s: float) -> bool:
        lock = self._locks.get(name)
        holder = None if lock is None else lock.holders.get(token)
        if holder is not None:
            self._note_enqueued(holder.session, name, holder.enqueued)
        return super().release(name, token, now_s)

    def _note_enqueued(self, session: Session, name: bytes, enqueued: Enqueued | None) -> None:
        """What a two-phase request is now: it may be changed by what follows."""
        if enqueued is None:
            known = session.enqueued.get(name)
            if known is None:
                self._steps.note(lambda: _forget_enqueued(session, name))
            return
        holder, waiter = enqueued.holder, enqueued.waiter

        def undo() -> None:
            enqueued.holder, enqueued.waiter = holder, waiter
            if holder is not None:
                holder.enqueued = enqueued
            if waiter is not None:
                waiter.enqueued, waiter.tell = enqueued, None
            if not session.has_ended:
                session.enqueued[name] = enqueued

        self._steps.note(undo)

    # -- without a grant

    def _put_back(self, holder: Holder) -> None:
        lock = holder.lock
        if holder.token not in lock.holders:
            self.holders += 1
        lock.holders[holder.token] = holder
        holder.session.holders.add(holder)
        self._idle.pop(lock.name, None)
        self._note_end(holder)


def _forget_enqueued(session: Session, name: bytes) -> None:
    session.enqueued.pop(name, None)
