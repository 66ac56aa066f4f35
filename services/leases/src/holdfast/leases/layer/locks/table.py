"""FIFO locks and semaphores: who holds the slots of a key, who waits for them, in which order.

A lock is a semaphore of one slot. Every step gets the time, and a grant is made by the step that frees the slot: nothing here waits or
looks again. The first request for a key fixes its number of slots until the key is forgotten.

    newcomer --a slot is free and no one waits--> holder --release, end of the session or of the lease--> the next waiter
       '------------- else ---------------> waiter --a slot becomes free--> holder
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.leases.layer.locks.records import Enqueued, Holder, Lock, Refused, Session, Tell, Waiter

KEYS_MAX_DEFAULT: Final = 1024


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Zero is no limit."""

    keys_max: int = KEYS_MAX_DEFAULT
    """Of all keys that are known: held, waited for or idle."""
    waiters_max: int = 0
    """Of one key."""


class LockTable:
    """All keys of one process."""

    def __init__(self, new_token: Callable[[], bytes], limits: TableLimits | None = None) -> None:
        self._new_token = new_token
        self._limits = limits or TableLimits()
        self._locks: dict[bytes, Lock] = {}
        # Those without holders and waiters, longest idle first.
        self._idle: OrderedDict[bytes, Lock] = OrderedDict()
        self._ending: dict[int, set[Holder]] = {}  # By the second in which their lease ends.
        self._first_second = 0
        """No lease ends before it."""
        self.holders = 0
        self.waiters = 0

    def __len__(self) -> int:
        return len(self._locks)

    @property
    def locks(self) -> Iterable[Lock]:
        return self._locks.values()

    def lock(self, name: bytes) -> Lock | None:
        return self._locks.get(name)

    # -- one phase

    def acquire(
        self,
        session: Session,
        name: bytes,
        limit: int,
        ttl_s: int,
        now_s: float,
        tell: Tell | None = None,
    ) -> Holder | Waiter | Refused:
        """A slot, or a place in the queue if `tell` is there to be told."""
        lock = self._opened(name, limit, now_s)
        if isinstance(lock, Refused):
            return lock
        if lock.is_free:
            return self._grant(lock, session, ttl_s, now_s)
        if self._is_queue_full(lock):
            return Refused.MAX_WAITERS
        return Refused.TIMEOUT if tell is None else self._queue(lock, session, ttl_s, now_s, tell)

    def cancel(self, waiter: Waiter, now_s: float) -> None:
        """The waiter leaves the queue, if it is still there."""
        lock = waiter.lock
        waiter.drop_timer()
        if waiter in lock.waiters:
            del lock.waiters[waiter]
            waiter.session.waiters.discard(waiter)
            self.waiters -= 1
            self._rest(lock, now_s)

    def release(self, name: bytes, token: bytes, now_s: float) -> bool:
        """Whether this token held a slot. It is all that a release needs; any session may do it."""
        lock = self._locks.get(name)
        holder = None if lock is None else lock.holders.get(token)
        if holder is None:
            return False
        if holder.enqueued is not None:
            holder.session.enqueued.pop(name, None)
        self._free(holder, now_s)
        return True

    def renew(self, name: bytes, token: bytes, ttl_s: int, now_s: float) -> bool:
        """Let the lease end so long after now; False if there is none, or if it has ended."""
        lock = self._locks.get(name)
        if lock is None:
            return False
        self._expire(lock, now_s)
        holder = lock.holders.get(token)
        if holder is None:
            return False
        self._restart(holder, ttl_s, now_s)
        return True

    # -- two phases

    def enqueue(
        self, session: Session, name: bytes, limit: int, ttl_s: int, now_s: float
    ) -> Holder | Refused | None:
        """A slot at once, or None: the session has a place in the queue, and asks for the slot by `wait`."""
        lock = self._opened(name, limit, now_s)
        if isinstance(lock, Refused):
            return lock
        known = session.enqueued.get(name)
        if known is not None and (known.holder is not None or known.waiter is not None):
            return Refused.ALREADY_ENQUEUED
        if len(session.enqueued) > len(self._locks):
            self._forget_lost(session)
        if lock.is_free:
            holder = self._grant(lock, session, ttl_s, now_s)
            session.enqueued[name] = holder.enqueued = Enqueued(ttl_s, holder)
            return holder
        if self._is_queue_full(lock):
            return Refused.MAX_WAITERS
        session.enqueued[name] = enqueued = Enqueued(ttl_s)
        enqueued.was_queued = True
        enqueued.waiter = self._queue(lock, session, ttl_s, now_s)
        enqueued.waiter.enqueued = enqueued
        return None

    def wait(
        self, session: Session, name: bytes, now_s: float, tell: Tell | None = None
    ) -> Holder | Waiter | Refused:
        """The second half: the slot, whose lease begins anew. It ends what `enqueue` began, however it ends."""
        enqueued = session.enqueued.get(name)
        if enqueued is None:
            return Refused.NOT_ENQUEUED
        lock = self._locks.get(name)
        if lock is not None:
            self._expire(lock, now_s, keeps=enqueued)
        session.enqueued.pop(name, None)
        waiter, holder = enqueued.waiter, enqueued.holder
        if waiter is not None:
            if tell is None:
                self.cancel(waiter, now_s)
                return Refused.TIMEOUT
            waiter.enqueued = None
            waiter.tell = tell
            return waiter
        if holder is None:
            return Refused.LEASE_EXPIRED
        holder.enqueued = None
        self._restart(holder, enqueued.ttl_s, now_s)
        return holder

    # -- sessions and time

    def end_session(self, session: Session, now_s: float, *, keeps_leases: bool = False) -> None:
        """A client is gone: it leaves every queue before anything is granted, and what it holds goes to the next."""
        session.enqueued.clear()
        for waiter in list(session.waiters):
            self.cancel(waiter, now_s)
        if keeps_leases:
            return
        for holder in list(session.holders):
            self._free(holder, now_s)

    def expire(self, now_s: float) -> int:
        """End the leases whose time is over; how many."""
        found = self.over(now_s)
        for holder in found:
            self._end_lease(holder, now_s)
        return len(found)

    def over(self, now_s: float) -> list[Holder]:
        """Those whose lease has ended by now."""
        if not self._ending:
            return []
        last = int(now_s)
        while self._first_second < last and self._first_second not in self._ending:
            self._first_second += 1
        seconds = range(self._first_second, last + 1)
        found = (holder for second in seconds for holder in self._ending.get(second, ()))
        return [holder for holder in found if holder.ends_s <= now_s]

    def forget_idle(self, now_s: float, idle_s: float) -> int:
        """Forget the keys without holders and waiters for so long; how many."""
        forgotten = 0
        while self._idle:
            name, lock = next(iter(self._idle.items()))
            if now_s - lock.idle_since_s <= idle_s:
                break
            del self._idle[name]
            del self._locks[name]
            forgotten += 1
        return forgotten

    def forget(self, name: bytes) -> None:
        """Know nothing of the key any more."""
        lock = self._locks.pop(name, None)
        if lock is None:
            return
        self._idle.pop(name, None)
        for holder in list(lock.holders.values()):
            self._lose(holder)
        self._idle.pop(name, None)

    # -- small parts

    def _opened(self, name: bytes, limit: int, now_s: float) -> Lock | Refused:
        """The key as it stands now: what is over has ended."""
        lock = self._locks.get(name)
        if lock is None:
            if len(self._locks) >= self._limits.keys_max > 0:
                return Refused.MAX_LOCKS
            lock = self._locks[name] = self._idle[name] = Lock(name, limit)
            lock.idle_since_s = now_s
            return lock
        if lock.limit != limit:
            return Refused.LIMIT_MISMATCH
        if lock.first_end_s <= now_s:
            self._expire(lock, now_s)
        return lock

    def _forget_lost(self, session: Session) -> None:
        """Slots that were lost before their `wait`, of keys that are forgotten since: else they would pile up."""
        for name in [name for name in session.enqueued if name not in self._locks]:
            del session.enqueued[name]

    def _is_queue_full(self, lock: Lock) -> bool:
        return len(lock.waiters) >= self._limits.waiters_max > 0

    def _grant(self, lock: Lock, session: Session, ttl_s: int, now_s: float) -> Holder:
        if not lock.holders:
            self._idle.pop(lock.name, None)
        ends_s = now_s + ttl_s
        holder = Holder(lock, self._new_token(), session, ttl_s, ends_s, now_s)
        lock.holders[holder.token] = holder
        session.holders.add(holder)
        self._note_end(holder)
        self.holders += 1
        return holder

    def _queue(
        self, lock: Lock, session: Session, ttl_s: int, now_s: float, tell: Tell | None = None
    ) -> Waiter:
        waiter = Waiter(lock, session, ttl_s, now_s, tell)
        lock.waiters[waiter] = None
        session.waiters.add(waiter)
        self.waiters += 1
        return waiter

    def _free(self, holder: Holder, now_s: float) -> None:
        lock = holder.lock
        if lock.holders.pop(holder.token, None) is None:
            return
        holder.session.holders.discard(holder)
        self._forget_end(holder)
        self.holders -= 1
        self._grant_waiters(lock, now_s)

    def _grant_waiters(self, lock: Lock, now_s: float) -> None:
        while lock.waiters and len(lock.holders) < lock.limit:
            waiter, _ = lock.waiters.popitem(last=False)
            waiter.session.waiters.discard(waiter)
            self.waiters -= 1
            self._hand_over(waiter, self._grant(lock, waiter.session, waiter.ttl_s, now_s))
        self._rest(lock, now_s)

    def _hand_over(self, waiter: Waiter, holder: Holder) -> None:
        enqueued = waiter.enqueued
        if enqueued is None:
            waiter.finish(holder)
            return
        enqueued.waiter = None
        enqueued.holder = holder
        holder.enqueued = enqueued

    def _rest(self, lock: Lock, now_s: float) -> None:
        if not lock.holders and not lock.waiters:
            lock.idle_since_s = now_s
            lock.first_end_s = float("inf")
            self._idle[lock.name] = lock
            self._idle.move_to_end(lock.name)

    def _expire(self, lock: Lock, now_s: float, keeps: Enqueued | None = None) -> None:
        """End the leases of this key that are over. What became of `keeps` is told by it."""
        if lock.first_end_s > now_s:
            return
        for holder in [holder for holder in lock.holders.values() if holder.ends_s <= now_s]:
            self._end_lease(holder, now_s, keeps)
        lock.first_end_s = min((holder.ends_s for holder in lock.holders.values()), default=float("inf"))

    def _end_lease(self, holder: Holder, now_s: float, keeps: Enqueued | None = None) -> None:
        enqueued = holder.enqueued
        if enqueued is not None:
            enqueued.holder = None
            # A queued session was never told of its token: its wait says that it is lost.
            if not enqueued.was_queued and enqueued is not keeps:
                holder.session.enqueued.pop(holder.lock.name, None)
        self._free(holder, now_s)

    def _restart(self, holder: Holder, ttl_s: int, now_s: float) -> None:
        self._forget_end(holder)
        holder.ttl_s = ttl_s
        holder.ends_s = now_s + ttl_s
        self._note_end(holder)

    def _note_end(self, holder: Holder) -> None:
        ends_s = holder.ends_s
        second = int(ends_s)
        holder.lock.first_end_s = min(holder.lock.first_end_s, ends_s)
        if not self._ending or second < self._first_second:
            self._first_second = second
        ending = self._ending.get(second)
        if ending is None:
            ending = self._ending[second] = set()
        ending.add(holder)

    def _forget_end(self, holder: Holder) -> None:
        second = int(holder.ends_s)
        ending = self._ending[second]
        ending.discard(holder)
        if not ending:
            del self._ending[second]

    def _lose(self, holder: Holder) -> None:
        enqueued = holder.enqueued
        if enqueued is not None:
            enqueued.holder = None
            if not enqueued.was_queued:
                holder.session.enqueued.pop(holder.lock.name, None)
        self._drop(holder)

    def _drop(self, holder: Holder) -> None:
        lock = holder.lock
        if lock.holders.pop(holder.token, None) is None:
            return
        holder.session.holders.discard(holder)
        self._forget_end(holder)
        self.holders -= 1
        if not lock.holders and not lock.waiters:
            self._idle[lock.name] = lock
