"""Slots and places in a queue that are asked for over HTTP: no connection keeps them, so whoever asked has to be told, or they go back.

asked --a slot is free--> granted --told--> held, until its release or the end of its lease
  '--else--> waiting --a slot becomes free--> granted
                '--end of the time, of the client, of the server--> gone
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.leases.layer.locks.records import Grant, Outcome, Pending, Refused, Session, Tell
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.protocol.locks.errors import TooManyLockWaiters, lock_held, refusal
from holdfast.leases.protocol.locks.names import labelled

TICKETS_MAX: Final = 10_000
"""Places in queues that nobody waits for at this moment."""
_TICKET_S_MAX: Final = 1e9
_FENCING_DIGITS: Final = 16


class Wanted(NamedTuple):
    """What is asked for, and by whom."""

    key: bytes
    limit: int
    ttl_s: int
    owner: str
    address: str


def fencing_token_of(token: bytes) -> int:
    """Tokens begin with a number that only grows."""
    return int(token[:_FENCING_DIGITS], 16)


class Place:
    """The request of one client: what it was granted, or its place in the queue."""

    __slots__ = ("_service", "_session", "wanted")

    def __init__(self, service: LockService, wanted: Wanted) -> None:
        self.wanted = wanted
        self._service = service
        self._session: Session = service.begin_session(labelled(wanted.owner, wanted.address))

    async def acquire(self, wait_s: int) -> Grant:
        """A slot, now or within the time."""
        wanted = self.wanted
        outcome = await self._outcome(
            lambda tell: self._service.acquire(
                self._session, wanted.key, wanted.limit, wanted.ttl_s, wait_s, tell
            )
        )
        if outcome is Refused.TIMEOUT and not wait_s:
            raise lock_held()
        return _granted(outcome)

    async def enqueue(self) -> Grant | None:
        """A slot at once; None: a place in the queue."""
        wanted = self.wanted
        outcome = await self._outcome(
            lambda tell: self._service.enqueue(self._session, wanted.key, wanted.limit, wanted.ttl_s, tell)
        )
        return None if outcome is None else _granted(outcome)

    async def wait(self, wait_s: int) -> Grant:
        """The slot of the place that `enqueue` took; however it ends, the place is gone."""
        return _granted(
            await self._outcome(lambda tell: self._service.wait(self._session, self.wanted.key, wait_s, tell))
        )

    def give_back(self, grant: Grant) -> None:
        """Its client was not told of it. The release is not the client's own, whose session may be over."""
        self._service.release(self._service.begin_session(), self.wanted.key, grant.token, _ignore)

    def leave(self) -> None:
        """Its client does not come back: out of the queue, and out of the slot that it became."""
        self._service.end_session(self._session)

    async def _outcome(self, begin: Callable[[Tell], Outcome | Pending]) -> Outcome:
        """What a request comes to; whoever stops waiting for that keeps nothing of it."""
        coming: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        found = begin(coming.set_result)
        if not isinstance(found, Pending):
            return found
        try:
            await asyncio.wait({coming})
        except asyncio.CancelledError:
            if not coming.done():
                self._service.cancel(found)
            elif isinstance(grant := coming.result(), Grant):
                self.give_back(grant)
            self.leave()
            raise
        return coming.result()


class Tickets:
    """Places that were taken in the first of two phases, until the second one; not for ever."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[Place, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def check_room(self) -> None:
        if len(self._places) >= TICKETS_MAX:
            raise TooManyLockWaiters("too many tickets that nobody waits for; try again", retry_after_s=1)

    def keep(self, place: Place) -> str:
        """A ticket for it, which lasts as long as the lease that is asked for."""
        ticket = secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(place.wanted.ttl_s, _TICKET_S_MAX), self.drop, ticket)
        self._places[ticket] = place, timer
        return ticket

    def take(self, ticket: str, key: bytes) -> Place:
        """Its place; whoever takes it has to end it."""
        kept = self._places.get(ticket)
        if kept is None or kept[0].wanted.key != key:
            raise refusal(Refused.NOT_ENQUEUED)
        place, timer = self._places.pop(ticket)
        timer.cancel()
        return place

    def drop(self, ticket: str) -> bool:
        """Give its place up; whether it had one."""
        kept = self._places.pop(ticket, None)
        if kept is None:
            return False
        kept[1].cancel()
        kept[0].leave()
        return True


async def outcome_of(begin: Callable[[Tell], Outcome | Pending]) -> Outcome:
    """What a request comes to that goes on without its client, too."""
    coming: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    found = begin(coming.set_result)
    if not isinstance(found, Pending):
        return found
    await asyncio.wait({coming})
    return coming.result()


def _granted(outcome: Outcome) -> Grant:
    if isinstance(outcome, Grant):
        return outcome
    raise refusal(outcome if isinstance(outcome, Refused) else Refused.UNAVAILABLE)


def _ignore(outcome: Outcome) -> None:
    return
