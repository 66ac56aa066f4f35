"""What the lock table keeps: sessions, keys, holders, waiters, places in a queue; and what a request comes to."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from holdfast.leases.layer.locks.values import ValueResult


class Refused(Enum):
    """Why a request got no slot."""

    TIMEOUT = "timeout"
    MAX_LOCKS = "max_locks"
    MAX_WAITERS = "max_waiters"
    LIMIT_MISMATCH = "limit_mismatch"
    ALREADY_ENQUEUED = "already_enqueued"
    NOT_ENQUEUED = "not_enqueued"
    LEASE_EXPIRED = "lease_expired"
    UNAVAILABLE = "unavailable"
    """It can't be decided or recorded now, or the service stops."""


class Grant:
    """A slot as its client is told of it."""

    __slots__ = ("token", "ttl_s")

    def __init__(self, token: bytes, ttl_s: int) -> None:
        self.token = token
        self.ttl_s = ttl_s


Outcome: TypeAlias = Grant | Refused | ValueResult
"""What a request comes to: a slot, or why not; whether it was done; how many took a signal; a value. None: a place in the queue."""

Tell: TypeAlias = Callable[[Outcome], None]


class Session:
    """A client whose end releases what it holds."""

    __slots__ = ("address", "enqueued", "has_ended", "holders", "number", "on_lost", "waiters")

    def __init__(self, number: int, address: str = "") -> None:
        self.number = number
        self.address = address
        self.holders: set[Holder] = set()
        self.waiters: set[Waiter] = set()
        self.enqueued: dict[bytes, Enqueued] = {}
        self.has_ended = False
        self.on_lost: Callable[[], None] | None = None
        """Called when what it holds is lost without its doing; a connection ends then, so that its client knows."""


class Pending:
    """A request whose outcome comes later, once, unless it is cancelled or its session ends."""

    __slots__ = ()

    @property
    def waits(self) -> bool:
        """For what others do. False: the outcome comes soon by itself, and is also for a client that only ended its own side."""
        return True

    def hurry(self) -> None:
        """Its client has ended its own side: it takes the outcome, but waits for nothing."""


class Holder(Grant):
    """One slot of a key, from its grant to its release or the end of its lease."""

    __slots__ = ("ends_s", "enqueued", "granted_s", "lock", "session")

    def __init__(
        self, lock: "Lock", token: bytes, session: Session, ttl_s: int, ends_s: float, granted_s: float
    ) -> None:
        self.lock = lock
        self.token = token
        self.session = session
        self.ttl_s = ttl_s
        self.ends_s = ends_s
        self.granted_s = granted_s
        self.enqueued: Enqueued | None = None
        """The two-phase request that was granted and has not been waited for yet."""


class Waiter(Pending):
    """A place in the queue of a key."""

    __slots__ = ("enqueued", "lock", "session", "since_s", "tell", "timer", "ttl_s")

    def __init__(
        self, lock: "Lock", session: Session, ttl_s: int, since_s: float, tell: Tell | None = None
    ) -> None:
        self.lock = lock
        self.session = session
        self.ttl_s = ttl_s
        self.since_s = since_s
        self.tell = tell
        """None while it is the first of two phases: the session asks for the slot by its second request."""
        self.enqueued: Enqueued | None = None
        self.timer: asyncio.TimerHandle | None = None

    def finish(self, outcome: Outcome) -> None:
        """Tell it; by then the waiter has left the queue."""
        self.drop_timer()
        tell, self.tell = self.tell, None
        if tell is not None:
            tell(outcome)

    def drop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Enqueued:
    """The first half of a two-phase acquire of a session: granted, queued, or granted and lost again."""

    __slots__ = ("holder", "ttl_s", "waiter", "was_queued")

    def __init__(self, ttl_s: int, holder: Holder | None = None) -> None:
        self.ttl_s = ttl_s
        """Of the lease when `wait` begins it anew, whatever a renewal said."""
        self.holder = holder
        self.waiter: Waiter | None = None
        self.was_queued = False


class Lock:
    """A key: a semaphore of `limit` slots; a lock has one."""

    __slots__ = ("first_end_s", "holders", "idle_since_s", "limit", "name", "waiters")

    def __init__(self, name: bytes, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.holders: dict[bytes, Holder] = {}
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.idle_since_s = 0.0
        self.first_end_s = float("inf")
        """No lease of a holder ends before this."""

    @property
    def is_free(self) -> bool:
        """Whether a newcomer gets a slot at once: none may overtake a waiter."""
        return len(self.holders) < self.limit and not self.waiters
