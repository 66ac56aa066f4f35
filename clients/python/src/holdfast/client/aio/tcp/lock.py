"""A lock that is held by a connection, and a place in the queue of a key."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from holdfast.client.aio.concurrency import Background, Event, Lock, is_set_within
from holdfast.client.aio.tcp.connection import Connection
from holdfast.client.errors import ClientError, LeaseLost, TransportFailed
from holdfast.client.session.lease import whole_seconds
from holdfast.client.tcp import protocol
from holdfast.client.tcp.protocol import Granted

_RENEW_SHARE: Final = 3
"""A lease is renewed when a third of it is over, and no later than servers cut off silent connections."""
_RENEW_S_MAX: Final = 10.0

GiveBack = Callable[[Connection], None]


class TcpLock:
    """Renewed in the background on its connection; released at the end of its block.

    It belongs to its connection: when that breaks, the server releases it. `lost` is set as soon as that is noticed, by the next renewal
    at the latest, and when the lease is over without an answer of the server; a block whose lock was lost ends with LeaseLost.
    """

    def __init__(
        self,
        connection: Connection,
        key: str,
        granted: Granted,
        *,
        timeout_s: float,
        give_back: GiveBack,
        background: Background,
    ) -> None:
        self.key = key
        self.token = granted.token
        self.ttl_s = granted.ttl_s
        self.lost = Event()
        self.lost_because: LeaseLost | None = None
        self._connection = connection
        # The grant may have come at any moment of a long wait: half of the time is believed then.
        self._ends_s = max(connection.used_at_s + self.ttl_s, time.monotonic() + self.ttl_s / 2)
        self._timeout_s = timeout_s
        self._give_back = give_back
        self._asking = Lock()
        self._ended = Event()
        background.start(self._keep, name="holdfast.tcp.renewal")

    @property
    def is_ended(self) -> bool:
        """Released or lost."""
        return self._ended.is_set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.release()
            return
        try:
            await self.release()
        except ClientError as problem:
            error.add_note(f"holdfast: the lock was not released by its holder: {problem}")

    def drop(self) -> None:
        """Its client is closed, and with it the connection."""
        self._lose(LeaseLost("lock_not_held", "the client was closed"))

    async def renew(self, ttl_s: float | None = None) -> int:
        """Count the lease from now, by default as long as before; gives its seconds."""
        async with self._asking:
            self._check_held()
            seconds = whole_seconds(self.ttl_s if ttl_s is None else ttl_s)
            answer = await self._ask(protocol.request("n", self.key, f"{self.token} {seconds}"))
            if answer == "error":
                self._lose(protocol.not_held(answer))
                self._check_held()
            self.ttl_s = protocol.number_of(answer)
            self._ends_s = self._connection.used_at_s + self.ttl_s
            return self.ttl_s

    async def release(self) -> None:
        """End it. A second time it does nothing. Raises LeaseLost if it was lost before."""
        async with self._asking:
            if self._ended.is_set():
                if self.lost_because is not None:
                    raise self.lost_because
                return
            answer = await self._ask(protocol.request("r", self.key, self.token))
            if answer != "ok":
                self._lose(protocol.not_held(answer))
                self._check_held()
            self._ended.set()
            self._give_back(self._connection)

    async def _ask(self, request: bytes) -> str:
        """No longer than the lease lasts for certain, by our own clock."""
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            self._lose(LeaseLost("lease_expired", "the lease ended before it was renewed"))
            self._check_held()
        try:
            return await self._connection.ask(request, min(self._timeout_s, left_s))
        except TransportFailed as problem:
            self._lose(LeaseLost("lock_not_held", f"the connection of the lock broke: {problem}"))
            raise self.lost_because or problem from problem

    def _renewal_in_s(self) -> float:
        left_s = self._ends_s - time.monotonic()
        return max(0.0, min(left_s - self.ttl_s * (_RENEW_SHARE - 1) / _RENEW_SHARE, _RENEW_S_MAX))

    async def _keep(self) -> None:
        while not await is_set_within(self._ended, self._renewal_in_s()):
            try:
                await self.renew()
            except ClientError as problem:
                if not self._ended.is_set():
                    self._lose(LeaseLost("lock_not_held", f"the renewal was refused: {problem}"))

    def _lose(self, because: LeaseLost) -> None:
        """Its connection is of no further use: what it still holds is unknown."""
        if not self._ended.is_set():
            self.lost_because = because
            self._ended.set()
            self.lost.set()
            self._connection.close()
            self._give_back(self._connection)

    def _check_held(self) -> None:
        if self._ended.is_set():
            raise self.lost_because or LeaseLost("lock_not_held", "this lock was released")


class TcpPlace:
    """The first of two phases: `await place.wait()` gives the lock. Left without that, it gives its place up."""

    def __init__(
        self,
        connection: Connection,
        key: str,
        limit: int,
        *,
        timeout_s: float,
        hold: Callable[[Granted], TcpLock],
        give_back: GiveBack,
    ) -> None:
        self.key = key
        self.is_granted = False
        """Whether the slot was free at once; its lease runs already."""
        self._connection = connection
        self._limit = limit
        self._timeout_s = timeout_s
        self._hold = hold
        self._give_back = give_back
        self._is_open = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def wait(self, *, wait_s: float | None = 10.0) -> TcpLock:
        """The slot, whose lease begins with the answer; LeaseHeld when it takes longer. The place is used up, however it ends."""
        seconds = protocol.wait_seconds(wait_s)
        request = protocol.request("w" if self._limit == 1 else "sw", self.key, str(whole_seconds(seconds)))
        try:
            answer = await self._connection.ask(request, self._timeout_s + seconds)
            lock = self._hold(protocol.granted_of(answer))
        except BaseException:
            self.close()
            raise
        self._is_open = False
        return lock

    def close(self) -> None:
        """Out of the queue, or out of the slot that it became."""
        if self._is_open:
            self._is_open = False
            self._connection.close()
            self._give_back(self._connection)
