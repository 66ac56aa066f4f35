# Generated from aio/locks/barrier.py by generate_sync.py: change that, then run `make sync-client`.
"""A barrier: no party goes on before all have come."""

from collections.abc import Callable
from contextlib import suppress

from holdfast.client.errors import ClientError, InvalidArgument, LeaseHeld
from holdfast.client.locks.calls import LockCalls, WantedLock
from holdfast.client.locks.meeting import LINGER_S, channel_of, is_open, round_of, waiting_ttl_s
from holdfast.client.sync.locks.lock import HeldLock
from holdfast.client.sync.locks.signals import Bell
from holdfast.client.sync.transport import Transport

_PARTIES_MAX = 1_000
_LOOK_SHARE = 3
"""A signal may be lost, and a lease may end without one: so often within a lease a waiting party looks again."""


class Barrier:
    """`barrier.wait()` returns when `parties` wait for it. A party that dies is counted until its lease ends.

    The object may be used again, for the next round; all parties have to make the same rounds, `round_number` is the one that comes
    next. A party that is cut off for longer than 10 seconds while the barrier opens misses the round.
    """

    def __init__(
        self,
        transport: Transport,
        calls: LockCalls,
        acquire: Callable[[WantedLock], HeldLock],
        key: str,
        parties: int,
        *,
        ttl_s: float,
        owner: str,
        round_number: int,
    ) -> None:
        if not 1 <= parties <= _PARTIES_MAX:
            raise InvalidArgument(f"a barrier has 1 to {_PARTIES_MAX} parties")
        self.round_number = round_number
        self._transport = transport
        self._calls = calls
        self._acquire = acquire
        self._key = key
        self._parties = parties
        self._ttl_s = waiting_ttl_s(ttl_s)
        self._owner = owner

    def wait(self, *, wait_s: float | None = None) -> int:
        """Come, and wait for the others; gives the number of the round. LeaseHeld when they do not come in time."""
        number = self.round_number
        key = round_of(self._key, number)
        channel = channel_of("barrier", key)
        until_s = None if wait_s is None else self._calls.channel.monotonic_s() + wait_s
        with Bell(self._transport, self._calls, channel) as bell:
            slot = self._acquire(self._wanted(key, wait_s))
            try:
                while not self._is_open(key, slot):
                    left_s = None if until_s is None else until_s - self._calls.channel.monotonic_s()
                    if left_s is not None and left_s <= 0:
                        raise LeaseHeld("lock_timeout", "not all parties have come", status=409)
                    look_s = self._ttl_s / _LOOK_SHARE
                    bell.wait(look_s if left_s is None else min(look_s, left_s))
            except BaseException:
                with suppress(ClientError):
                    slot.release()
                raise
            self._pass(slot, channel)
        self.round_number = number + 1
        return number

    def _is_open(self, key: str, slot: HeldLock) -> bool:
        slot.check_held()
        view = self._transport.run(self._calls.describe(key))
        found = is_open(view, slot.fencing_token, self._parties)
        if found is None:
            slot.renew()  # Says that it is lost.
        return bool(found)

    def _pass(self, slot: HeldLock, channel: str) -> None:
        """Leave the mark that the others see, and tell them."""
        with suppress(ClientError):  # It is open; the others find out when they look.
            slot.renew(LINGER_S)
            self._transport.run(self._calls.signal(channel, "open"))
        slot.detach()

    def _wanted(self, key: str, wait_s: float | None) -> WantedLock:
        return WantedLock(key=key, limit=self._parties, ttl_s=self._ttl_s, wait_s=wait_s, owner=self._owner)
