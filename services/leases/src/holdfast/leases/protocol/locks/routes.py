"""HTTP in, lock table, HTTP out: acquire, renew, release, and acquire in two phases.

A lock that is taken over HTTP has no connection. It ends by its release or with its lease; a grant whose answer got lost is
released, and a client that hangs up while it waits leaves the queue.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Answer, HandOver, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import ALL_METHODS, Admission, Begins, Duration, Group
from holdfast.common.express.undo import Repeat
from holdfast.common.fields import MissingKey, owner_of
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain
from holdfast.leases.layer.errors import LeaseExpired
from holdfast.leases.layer.locks.records import Grant, Outcome, Refused
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.protocol.locks.errors import (
    InvalidLockKey,
    LimitMismatch,
    LockHeld,
    LockNotHeld,
    LockTimeout,
    LockUnavailable,
    NotEnqueued,
    TooManyLocks,
    TooManyLockWaiters,
    refusal,
)
from holdfast.leases.protocol.locks.names import key_of, owner_and_address
from holdfast.leases.protocol.locks.places import (
    Holdings,
    Place,
    Tickets,
    Wanted,
    fencing_token_of,
    outcome_of,
)
from holdfast.leases.protocol.locks.schemas import (
    AcquireLockRequest,
    EnqueueAnswer,
    EnqueueRequest,
    GrantAnswer,
    ReleaseLockAnswer,
    ReleaseLockRequest,
    RenewAnswer,
    RenewRequest,
    WaitRequest,
    WantedLock,
)
from holdfast.leases.protocol.locks.withdrawal import UNDO_LOCK, WithdrawLockRequest

_BAD_KEY: Final = (MissingKey, InvalidLockKey)
_NO_PLACE: Final = (LimitMismatch, TooManyLocks, TooManyLockWaiters, LockUnavailable)
_EXAMPLE: Final = {"key": "jobs/nightly", "limit": 1, "ttl_seconds": 30, "owner": "worker-1"}
_HELD: Final = Admission(Group.LOCK)


class LockRoutes:
    """The endpoints of locks and semaphores. `service` is set while the process serves."""

    _service: LockService
    _holdings: Holdings
    _tickets: Tickets

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self.router = ExpressRouter(tags=("locks",), service=Role.LEASES, affinity="key")
        self._declare_acquire()
        self._declare_two_phases()
        self._declare_holding()

    @property
    def service(self) -> LockService:
        return self._service

    @service.setter
    def service(self, service: LockService) -> None:
        self._service = service
        self._holdings = Holdings(service)
        self._tickets = Tickets(service)
        service.on_ticket = self._tickets.redeem

    def _declare_acquire(self) -> None:
        self.router.add(
            "/v1/locks/acquire",
            self.acquire,
            request_model=AcquireLockRequest,
            response_model=GrantAnswer,
            errors=(*_BAD_KEY, LockHeld, LockTimeout, *_NO_PLACE),
            summary="Take a lock or a slot of a semaphore, waiting for it if asked to.",
            request_example={**_EXAMPLE, "wait_seconds": 10},
            body_limit_error=InvalidBody,
            undo=UNDO_LOCK,
            admission=Admission(Group.LOCK, Begins.ALWAYS, _asked_wait_s),
            duration=Duration.WAITING,
        )

    def _declare_two_phases(self) -> None:
        self.router.add(
            "/v1/locks/enqueue",
            self.enqueue,
            request_model=EnqueueRequest,
            response_model=EnqueueAnswer,
            errors=(*_BAD_KEY, *_NO_PLACE),
            summary="Take a slot if one is free, else a place in the queue, without waiting for it.",
            request_example=_EXAMPLE,
            body_limit_error=InvalidBody,
            undo=UNDO_LOCK,
            admission=Admission(Group.LOCK, Begins.ALWAYS),
        )
        self.router.add(
            "/v1/locks/wait",
            self.wait,
            request_model=WaitRequest,
            response_model=GrantAnswer,
            errors=(*_BAD_KEY, NotEnqueued, LockTimeout, LeaseExpired, LockUnavailable),
            summary="Wait for the slot of a ticket, whose lease begins with the answer.",
            request_example={"key": "jobs/nightly", "ticket": "…", "wait_seconds": 10},
            body_limit_error=InvalidBody,
            undo=UNDO_LOCK,
            admission=_HELD,
            duration=Duration.WAITING,
        )

    def _declare_holding(self) -> None:
        self.router.add(
            "/v1/locks/renew",
            self.renew,
            request_model=RenewRequest,
            response_model=RenewAnswer,
            errors=(*_BAD_KEY, LockNotHeld, LockUnavailable),
            summary="Count the time of a lock from now on.",
            request_example={"key": "jobs/nightly", "token": "…", "ttl_seconds": 30},
            body_limit_error=InvalidBody,
            admission=_HELD,
            repeatable=ALL_METHODS,
        )
        self.router.add(
            "/v1/locks/release",
            self.release,
            request_model=ReleaseLockRequest,
            response_model=ReleaseLockAnswer,
            errors=(*_BAD_KEY, LockNotHeld, LockUnavailable),
            summary="End a lock by its token, or every lock of a key by force.",
            request_example={"key": "jobs/nightly", "token": "…"},
            body_limit_error=InvalidBody,
            repeat=Repeat(_released_before),
            admission=_HELD,
        )

    async def acquire(self, request: Request, body: AcquireLockRequest) -> Answer:
        """Locks are granted first come, first served. Without `wait_seconds` it answers at once."""
        place = self._new_place(request, body)
        with self._drained():
            grant = await place.acquire(body.wait_seconds or 0)
        return _told(request, place, grant)

    async def enqueue(self, request: Request, body: EnqueueRequest) -> Answer:
        """The place is given up when no client waits for it within the `ttl_seconds` that are asked for."""
        self._tickets.check_room()
        place = self._new_place(request, body)
        with self._drained():
            grant = await place.enqueue()
        if grant is not None:
            return _told(request, place, grant, state="granted")
        ticket = self._tickets.keep(place)
        answer = json_answer({"state": "queued", "ticket": ticket, **_common(request, place.wanted)})
        return HandOver(answer.status, answer.body, answer.headers, partial(self._drop, ticket))

    async def wait(self, request: Request, body: WaitRequest) -> Answer:
        """However it ends, the ticket is used up. A slot that was granted before is answered at once."""
        key, ticket, wait_s = key_of(body.key), body.ticket or "", body.wait_seconds or 0
        if self._tickets.is_foreign(ticket):
            return await self._wait_at_other_node(request, ticket, key, wait_s)
        place = self._tickets.take(ticket, key)
        with self._drained():
            grant = await place.wait(wait_s)
        return _told(request, place, grant)

    async def _wait_at_other_node(self, request: Request, ticket: str, key: bytes, wait_s: int) -> Answer:
        with self._drained():
            grant = await self._holdings.redeem(ticket, key, wait_s)
        view = await self.service.describe_everywhere(key)
        holders = () if view is None else view.holders
        label = next((one.address for one in holders if one.token == grant.token), "")
        limit = 1 if view is None else view.limit
        owner, address = owner_and_address(label)
        wanted = Wanted(key, limit, grant.ttl_s, owner, address)
        return _granted(request, wanted, grant, partial(self._holdings.give_back, key, grant.token))

    async def renew(self, request: Request, body: RenewRequest) -> Answer:
        key, ttl_s = key_of(body.key), self._ttl_s(body.ttl_seconds)
        token = (body.token or "").encode()
        session = self._holdings.session_of(token)
        outcome = await outcome_of(lambda tell: self.service.renew(session, key, token, ttl_s, tell))
        _check_held(outcome)
        return json_answer({"ttl_seconds": ttl_s})

    async def release(self, request: Request, body: ReleaseLockRequest) -> Answer:
        """`force` is for operators: it ends what others hold, who learn of it when they renew. Those that wait get the slots."""
        key = key_of(body.key, body.key_base64)
        if body.force:
            return json_answer({"released": await self._release_all(key, body.fencing_token)})
        _check_held(await self._holdings.release(key, (body.token or "").encode()))
        return json_answer({"released": 1})

    async def withdraw(self, body: WithdrawLockRequest) -> bool:
        """Take back what an answer gave to a client that is gone."""
        if body.ticket is not None:
            return self._tickets.drop(body.ticket)
        return await self._holdings.release(body.key.encode(), (body.token or "").encode()) is True

    async def _release_all(self, key: bytes, last: int | None) -> int:
        """Of those that hold the key now; a waiter that gets a slot by that keeps it."""
        view = await self.service.describe_everywhere(key)
        tokens = [] if view is None else [holder.token for holder in view.holders]
        meant = [token for token in tokens if last is None or fencing_token_of(token) <= last]
        outcomes = [await self._holdings.release(key, token) for token in meant]
        return sum(outcome is True for outcome in outcomes)

    def _new_place(self, request: Request, body: WantedLock) -> Place:
        wanted = self._wanted(request, body)
        self._drain.refuse_new_work()
        return Place(self.service, self._holdings, wanted)

    def _wanted(self, request: Request, body: WantedLock) -> Wanted:
        owner = owner_of(body.owner or "", request.principal)
        client = request.client
        address = "" if client is None else f"{client[0]}:{client[1]}"
        return Wanted(key_of(body.key), body.limit or 1, self._ttl_s(body.ttl_seconds), owner, address)

    def _ttl_s(self, asked_s: int | None) -> int:
        return asked_s or self.service.options.default_ttl_s

    @contextmanager
    def _drained(self) -> Iterator[None]:
        """A client that waits when the server begins to stop is told so."""
        try:
            yield
        except LockUnavailable:
            self._drain.refuse_new_work()
            raise

    def _drop(self, ticket: str) -> None:
        self._tickets.drop(ticket)


def _told(request: Request, place: Place, grant: Grant, **members: str) -> Answer:
    return _granted(request, place.wanted, grant, partial(place.give_back, grant), **members)


def _granted(
    request: Request, wanted: Wanted, grant: Grant, give_back: Callable[[], None], **members: str
) -> Answer:
    answer = json_answer(
        {
            **members,
            "token": grant.token.decode(),
            "fencing_token": fencing_token_of(grant.token),
            **_common(request, wanted),
        }
    )
    return HandOver(answer.status, answer.body, answer.headers, give_back)


def _common(request: Request, wanted: Wanted) -> dict[str, object]:
    return {
        "key": wanted.key.decode(),
        "limit": wanted.limit,
        "ttl_seconds": wanted.ttl_s,
        "owner": wanted.owner,
        "correlation_id": request.correlation_id,
    }


def _asked_wait_s(request: Request) -> int | None:
    return AcquireLockRequest.model_validate_json(request.body).wait_seconds


def _check_held(outcome: Outcome) -> None:
    if isinstance(outcome, Refused):
        raise refusal(outcome)
    if outcome is not True:
        raise LockNotHeld("this token holds no slot of this key: it was released, or its lease has ended")


def _released_before(request: Request, status: int, body: bytes) -> Answer | None:
    """An earlier sending has released it, if a later one finds nothing."""
    return (
        json_answer({"released": 1}) if status == LockNotHeld.status and b'"lock_not_held"' in body else None
    )
