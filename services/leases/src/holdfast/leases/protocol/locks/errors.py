"""What locks and signals refuse over HTTP."""

from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.errors import LeaseExpired
from holdfast.leases.layer.locks.records import Refused

_SOON_S: Final = 1.0


class InvalidLockKey(HoldfastError):
    """The key of a lock is not 1 to 256 bytes without blanks and line ends."""

    code, status = "invalid_lock_key", 400


class InvalidSignal(HoldfastError):
    """The channel, pattern, group or payload of a signal is not what a channel, pattern, group or payload may be."""

    code, status = "invalid_signal", 400


class InvalidPage(HoldfastError):
    """The limit or the cursor of a listing is none."""

    code, status = "invalid_page", 400


class LockHeld(HoldfastError):
    """Every slot of the key is held, or others wait for it, and the caller does not want to wait."""

    code, status = "lock_held", 409


class LockTimeout(HoldfastError):
    """No slot of the key became free in the time that the caller wanted to wait; its place in the queue is gone."""

    code, status = "lock_timeout", 409


class LimitMismatch(HoldfastError):
    """The key is known with another number of slots, until it was not used for a while."""

    code, status = "limit_mismatch", 409


class TooManyLocks(HoldfastError):
    """The server knows as many keys of locks as it may; idle ones are forgotten in time."""

    code, status = "max_locks", 429


class TooManyLockWaiters(HoldfastError):
    """As many clients wait for the key as may."""

    code, status = "max_waiters", 429


class LockUnavailable(HoldfastError):
    """The lock cannot be decided or recorded now."""

    code, status = "lock_unavailable", 503


class NotEnqueued(HoldfastError):
    """The ticket has no place in the queue of this key: it was waited for already, or not in time."""

    code, status = "not_enqueued", 404


class LockNotFound(HoldfastError):
    """This key of a lock has no holder and no waiter, and was not used lately."""

    code, status = "lock_not_found", 404


class LockNotHeld(HoldfastError):
    """The token holds no slot of the key: released, ended by time, or never granted."""

    code, status = "lock_not_held", 403


def lock_held() -> LockHeld:
    return LockHeld("the key is held; wait for it with wait_seconds, or try again", retry_after_s=_SOON_S)


def refusal(refused: Refused) -> HoldfastError:
    """What the caller is told that waited, or would have."""
    match refused:
        case Refused.TIMEOUT:
            return LockTimeout("no slot became free in time; try again", retry_after_s=_SOON_S)
        case Refused.MAX_LOCKS:
            return TooManyLocks(
                "no room for another key; idle keys are forgotten in time", retry_after_s=_SOON_S
            )
        case Refused.MAX_WAITERS:
            return TooManyLockWaiters("too many wait for this key; try again", retry_after_s=_SOON_S)
        case Refused.LIMIT_MISMATCH:
            return LimitMismatch("the key has another number of slots; use that, or another key")
        case Refused.LEASE_EXPIRED:
            return LeaseExpired("the slot was granted, and its lease ended before it was waited for")
        case Refused.UNAVAILABLE:
            return LockUnavailable("locks cannot be granted now; try again", retry_after_s=_SOON_S)
        case Refused.NOT_ENQUEUED | Refused.ALREADY_ENQUEUED:
            return NotEnqueued("this ticket has no place in the queue of this key; enqueue again")
