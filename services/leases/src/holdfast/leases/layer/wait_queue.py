"""The waiters for each key, first come, first served. Pure bookkeeping; waiting itself is a future."""

import asyncio
import sys
from collections import deque

from holdfast.storage.port import Demand
from holdfast.txn.layer.port import Member

NEWEST = sys.maxsize  # As a revision: newer than all that the waiter has seen.


class Waiter:
    """One waiter's place. `turn` is done when it may try: it stands first and the key may be free.

    `notified_revision` is the newest revision at which the key may have become free, told since the last try began.
    """

    __slots__ = ("member", "notified_revision", "seen_revision", "turn")

    def __init__(self, member: Member) -> None:
        self.member = member
        self.seen_revision = 0
        self.notified_revision = 0
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin_try(self) -> None:
        self.notified_revision = 0
        self.turn.cancel()


class WaitQueues:
    """The queues of all keys, `by_key`. A key without waiters has none, so it costs nothing."""

    def __init__(self) -> None:
        self.by_key: dict[Member, deque[Waiter]] = {}
        self.waiters = 0
        self.demand = Demand()
        """For what other processes do to leases."""

    def length(self, member: Member) -> int:
        return len(self.by_key.get(member, ()))

    def enqueue(self, member: Member) -> Waiter:
        waiter = Waiter(member)
        self.by_key.setdefault(member, deque()).append(waiter)
        self.waiters += 1
        self.demand.set(True)
        return waiter

    def is_first(self, waiter: Waiter) -> bool:
        return self.by_key[waiter.member][0] is waiter

    def leave(self, waiter: Waiter) -> None:
        """Granted, timed out or hung up. If it stood first, the next one's turn has come."""
        queue = self.by_key[waiter.member]
        was_first = queue[0] is waiter
        queue.remove(waiter)
        self.waiters -= 1
        self.demand.set(self.waiters > 0)
        if not queue:
            del self.by_key[waiter.member]
        elif was_first:
            self.notify(waiter.member)

    def notify(self, member: Member, revision: int = NEWEST) -> None:
        """The key may be free since that revision: let the first one try, unless it has seen a newer holder."""
        queue = self.by_key.get(member)
        if queue is None or queue[0].seen_revision >= revision:
            return
        queue[0].notified_revision = max(queue[0].notified_revision, revision)
        if not queue[0].turn.done():
            queue[0].turn.set_result(None)

    def notify_firsts(self) -> None:
        """Any key may be free: the first waiter of each queue tries."""
        for member in list(self.by_key):
            self.notify(member)

    def notify_all(self) -> None:
        """Every waiter has to look: waiting makes no sense any more."""
        for queue in self.by_key.values():
            for waiter in queue:
                if not waiter.turn.done():
                    waiter.turn.set_result(None)

    def wait_again(self, waiter: Waiter, seen_revision: int) -> None:
        """It tried and the key was not free as of this revision; if it was notified of a newer one meanwhile, it tries
        again at once."""
        waiter.seen_revision = seen_revision
        waiter.turn = asyncio.get_running_loop().create_future()
        if waiter.notified_revision > seen_revision:
            waiter.turn.set_result(None)
