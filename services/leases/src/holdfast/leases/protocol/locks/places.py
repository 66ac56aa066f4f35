"""Slots and places in a queue that are asked for over HTTP: no connection keeps them, so the client is told of them, or they go back.

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
"""Places in queues, of enqueued clients that do not wait yet."""
_TIMER_S_MAX: Final = 1e9
_LOOK_LATER_S: Final = 1.0
"""After the end of a lease, so that it is over by all means."""
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


class Holdings:
    """What was granted over HTTP, by its token. No connection ends its session, so that is done when the token holds nothing any more."""

    def __init__(self, service: LockService) -> None:
        self._service = service
        self._kept: dict[bytes, tuple[Session, bytes, asyncio.TimerHandle]] = {}
        self._elsewhere = Session(0)
        """Of requests about what another process has granted."""
        self._looks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, session: Session, key: bytes, grant: Grant) -> None:
        self._kept[grant.token] = session, key, self._look_in(grant.token, grant.ttl_s)

    def session_of(self, token: bytes) -> Session:
        kept = self._kept.get(token)
        return self._elsewhere if kept is None else kept[0]

    def ended(self, token: bytes) -> None:
        """It was released, or its lease is over."""
        kept = self._kept.pop(token, None)
        if kept is not None:
            kept[2].cancel()
            self._service.end_session(kept[0], keeps_leases=True)

    async def release(self, key: bytes, token: bytes) -> Outcome:
        session = self.session_of(token)
        outcome = await outcome_of(lambda tell: self._service.release(session, key, token, tell))
        if not isinstance(outcome, Refused):
            self.ended(token)
        return outcome

    async def redeem(self, ticket: str, key: bytes, wait_s: int) -> Grant:
        """The slot of a ticket that another process gave."""
        node = ticket.partition(".")[0]
        coming: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        found = self._service.redeem(node, ticket, key, wait_s, coming.set_result)
        if isinstance(found, Pending):
            try:
                await asyncio.wait({coming})
            except asyncio.CancelledError:
                if not coming.done():
                    self._service.cancel(found)
                elif isinstance(grant := coming.result(), Grant):
                    self.give_back(key, grant.token)
                raise
            found = coming.result()
        if isinstance(found, Grant):
            return found
        raise refusal(found if isinstance(found, Refused) else Refused.UNAVAILABLE)

    def give_back(self, key: bytes, token: bytes) -> None:
        """The same for a callback: its client was not told of it."""

        def told(outcome: Outcome) -> None:
            self.ended(token)

        found = self._service.release(self.session_of(token), key, token, told)
        if not isinstance(found, Pending):
            told(found)

    def _look_in(self, token: bytes, seconds: float) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(min(seconds + _LOOK_LATER_S, _TIMER_S_MAX), self._look, token)

    def _look(self, token: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._end_if_over(token), name="locks.look")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _end_if_over(self, token: bytes) -> None:
        """A holder may have renewed it at another process."""
        kept = self._kept.get(token)
        if kept is None:
            return
        view = await self._service.describe_everywhere(kept[1])
        holders = () if view is None else view.holders
        left_s = next((holder.ends_in_s for holder in holders if holder.token == token), None)
        if left_s is None:
            self.ended(token)
        elif token in self._kept:
            self._kept[token] = kept[0], kept[1], self._look_in(token, left_s)


class Place:
    """The request of one client: what it was granted, or its place in the queue."""

    __slots__ = ("_holdings", "_service", "_session", "wanted")

    def __init__(self, service: LockService, holdings: Holdings, wanted: Wanted) -> None:
        self.wanted = wanted
        self._service = service
        self._holdings = holdings
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
            self.leave()
            raise lock_held()
        return self._granted(outcome)

    async def enqueue(self) -> Grant | None:
        """A slot at once; None: a place in the queue."""
        wanted = self.wanted
        outcome = await self._outcome(
            lambda tell: self._service.enqueue(self._session, wanted.key, wanted.limit, wanted.ttl_s, tell)
        )
        return None if outcome is None else self._granted(outcome)

    async def wait(self, wait_s: int) -> Grant:
        """The slot of the place that `enqueue` took; however it ends, the place is gone."""
        return self._granted(
            await self._outcome(lambda tell: self._service.wait(self._session, self.wanted.key, wait_s, tell))
        )

    def wait_for(self, timeout_s: float, tell: Tell) -> Outcome | Pending:
        """`wait` for a client of another process. One that hangs up there is not told, so the place is left in the end."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(timeout_s + _LOOK_LATER_S, _TIMER_S_MAX), self.leave)

        def conclude(outcome: Outcome) -> Outcome:
            timer.cancel()
            if isinstance(outcome, Grant):
                self._holdings.keep(self._session, self.wanted.key, outcome)
            else:
                self.leave()
            return outcome

        found = self._service.wait(
            self._session, self.wanted.key, timeout_s, lambda outcome: tell(conclude(outcome))
        )
        return found if isinstance(found, Pending) else conclude(found)

    def give_back(self, grant: Grant) -> None:
        """Its client was not told of it."""
        self._holdings.give_back(self.wanted.key, grant.token)

    def leave(self) -> None:
        """Its client does not come back: out of the queue, and out of the slot that it became."""
        self._service.end_session(self._session)

    def _granted(self, outcome: Outcome) -> Grant:
        if isinstance(outcome, Grant):
            self._holdings.keep(self._session, self.wanted.key, outcome)
            return outcome
        self.leave()
        raise refusal(outcome if isinstance(outcome, Refused) else Refused.UNAVAILABLE)

    async def _outcome(self, begin: Callable[[Tell], Outcome | Pending]) -> Outcome:
        """What a request comes to; a client that stops waiting for it keeps nothing."""
        coming: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        found = begin(coming.set_result)
        if not isinstance(found, Pending):
            return found
        try:
            await asyncio.wait({coming})
        except asyncio.CancelledError:
            if not coming.done():
                self._service.cancel(found)
                self.leave()
            elif isinstance(grant := coming.result(), Grant):
                self._granted(grant)
                self.give_back(grant)
            else:
                self.leave()
            raise
        return coming.result()


class Tickets:
    """Places that were taken in the first of two phases, until the second one; not for ever.

    A ticket begins with the name of the process that gave it, so that any process can be asked to wait.
    """

    def __init__(self, service: LockService) -> None:
        self._service = service
        self._places: dict[str, tuple[Place, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def check_room(self) -> None:
        if len(self._places) >= TICKETS_MAX:
            raise TooManyLockWaiters("too many tickets without a waiting client; try again", retry_after_s=1)

    def keep(self, place: Place) -> str:
        """A ticket for it, which lasts as long as the lease that is asked for."""
        ticket = f"{self._service.node}.{secrets.token_hex(16)}"
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(place.wanted.ttl_s, _TIMER_S_MAX), self.drop, ticket)
        self._places[ticket] = place, timer
        return ticket

    def is_foreign(self, ticket: str) -> bool:
        """Whether another process gave it."""
        return ticket.partition(".")[0] != self._service.node

    def redeem(self, ticket: str, key: bytes, timeout_s: float, tell: Tell) -> Outcome | Pending:
        """`LockService.on_ticket`: what another process asks for its client."""
        place = self._taken(ticket, key)
        return Refused.NOT_ENQUEUED if place is None else place.wait_for(timeout_s, tell)

    def take(self, ticket: str, key: bytes) -> Place:
        """Its place; the caller has to end it."""
        place = self._taken(ticket, key)
        if place is None:
            raise refusal(Refused.NOT_ENQUEUED)
        return place

    def drop(self, ticket: str) -> bool:
        """Give its place up; whether it had one."""
        kept = self._places.pop(ticket, None)
        if kept is None:
            return False
        kept[1].cancel()
        kept[0].leave()
        return True

    def _taken(self, ticket: str, key: bytes) -> Place | None:
        kept = self._places.get(ticket)
        if kept is None or kept[0].wanted.key != key:
            return None
        place, timer = self._places.pop(ticket)
        timer.cancel()
        return place


async def outcome_of(begin: Callable[[Tell], Outcome | Pending]) -> Outcome:
    """What a request comes to that goes on without its client, too."""
    coming: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    found = begin(coming.set_result)
    if not isinstance(found, Pending):
        return found
    await asyncio.wait({coming})
    return coming.result()
