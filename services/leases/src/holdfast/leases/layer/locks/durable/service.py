"""The locks of one process, recorded in the store: an outcome is told when the commit that records it is durable.

Sessions, waiters, two-phase requests, signals and values are in memory: a restart leaves holders without a connection, which end by
their token or with their lease.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from holdfast.leases.layer.locks.durable.journal import LockJournal
from holdfast.leases.layer.locks.durable.records import HELD, LOCKS, name_of
from holdfast.leases.layer.locks.durable.request import Act, Request
from holdfast.leases.layer.locks.durable.table import DurableTable
from holdfast.leases.layer.locks.durable.turns import KeyTurns
from holdfast.leases.layer.locks.records import Grant, Outcome, Pending, Refused, Session, Tell, Waiter
from holdfast.leases.layer.locks.service import LockOptions, LockService
from holdfast.leases.layer.locks.tokens import Tokens
from holdfast.storage.following import Follower
from holdfast.storage.port import Demand, Event, Store

FORGOTTEN_AT_ONCE_MAX: Final = 100


class DurableLockService(LockService):
    """Over a store that is open while it runs."""

    def __init__(self, options: LockOptions, store: Store) -> None:
        clock = store.clock
        super().__init__(options, lambda: clock.now_ms() / 1000)
        tokens = Tokens(lambda: clock.now_ms() * 1000)
        self.table: DurableTable = DurableTable(tokens.next, options.table)
        self._store = store
        self._is_loaded = False
        self._journal = LockJournal(store, tokens)
        self._turns = KeyTurns(self.table, self._journal, self.now_s, self._watch, self._count_expired)
        self._leaving: dict[Session, bool] = {}
        """Gone, and not yet recorded to have left everything; whether its leases stay."""

    # -- requests

    def acquire(
        self, session: Session, key: bytes, limit: int, ttl_s: int, timeout_s: float, tell: Tell
    ) -> Outcome | Pending:
        request = Request(key, session, tell, timeout_s)
        told = request.finish if timeout_s else None
        request.act = lambda now_s: self.table.acquire(session, key, limit, ttl_s, now_s, told)
        return self._ask(request)

    def enqueue(self, session: Session, key: bytes, limit: int, ttl_s: int, tell: Tell) -> Outcome | Pending:
        request = Request(key, session, tell)
        request.act = lambda now_s: self.table.enqueue(session, key, limit, ttl_s, now_s)
        return self._ask(request)

    def wait(self, session: Session, key: bytes, timeout_s: float, tell: Tell) -> Outcome | Pending:
        request = Request(key, session, tell, timeout_s)
        told = request.finish if timeout_s else None
        request.act = lambda now_s: self.table.wait(session, key, now_s, told)
        return self._ask(request)

    def release(self, session: Session, key: bytes, token: bytes, tell: Tell) -> Outcome | Pending:
        request = Request(key, session, tell)
        request.act = lambda now_s: self.table.release(key, token, now_s)
        return self._ask(request)

    def renew(self, session: Session, key: bytes, token: bytes, ttl_s: int, tell: Tell) -> Outcome | Pending:
        request = Request(key, session, tell)
        request.act = lambda now_s: self.table.renew(key, token, ttl_s, now_s)
        return self._ask(request)

    def cancel(self, pending: Pending) -> None:
        if not isinstance(pending, Request) or pending.is_finished:
            return
        pending.is_cancelled = True

        def give_back(now_s: float) -> Outcome:
            if pending.waiter is not None:
                self.table.cancel(pending.waiter, now_s)
            grant = pending.outcome
            return isinstance(grant, Grant) and self.table.release(pending.key, grant.token, now_s)

        self._do(pending.key, give_back)

    def _ask(self, request: Request) -> Outcome | Pending:
        if self._turns.ask(request):
            return request.outcome
        waiter = request.waiter
        if waiter is None or self._turns.is_busy(request.key):
            return request
        found = self._watched(waiter, request.timeout_s)
        return request if found is waiter else found

    def _do(self, key: bytes, act: Act) -> None:
        """A step of the service's own."""
        request = Request(key)
        request.act = act
        self._turns.ask(request)

    def is_busy(self, key: bytes) -> bool:
        """Whether something of this key is being recorded."""
        return self._turns.is_busy(key)

    # -- waiters and sessions

    def _watch(self, waiter: Waiter, timeout_s: float) -> None:
        found = self._watched(waiter, timeout_s)
        if isinstance(found, Refused):
            waiter.finish(found)

    def _refuse(self, waiter: Waiter, reason: Refused) -> None:
        def refuse(now_s: float) -> None:
            if waiter in waiter.lock.waiters:  # Else it was granted just now.
                self.table.cancel(waiter, now_s)
                waiter.finish(reason)

        self._do(waiter.lock.name, refuse)

    def end_session(self, session: Session, *, keeps_leases: bool = False) -> None:
        if not session.has_ended:
            session.has_ended = True
            self._leave(session, keeps_leases=keeps_leases or not self.options.releases_with_session)

    def _leave(self, session: Session, *, keeps_leases: bool) -> None:
        keys = {waiter.lock.name for waiter in session.waiters} | set(session.enqueued)
        if not keeps_leases:
            keys |= {holder.lock.name for holder in session.holders}
        if not keys:
            self._leaving.pop(session, None)
            return
        is_begun = session in self._leaving
        self._leaving[session] = keeps_leases
        for key in keys:
            if is_begun and self._turns.is_busy(key):
                continue  # It waits for its turn already.
            self._do(key, self._leaves(session, key, keeps_leases=keeps_leases))

    def _leaves(self, session: Session, key: bytes, *, keeps_leases: bool) -> Act:
        return lambda now_s: self.table.leave(session, key, now_s, keeps_leases=keeps_leases)

    def lose(self, key: bytes) -> None:
        """It stays recorded; who holds it goes on by its token, at the process that decides from now on."""

        def let_go(now_s: float) -> None:
            lock = self.table.lock(key)
            if lock is not None:
                self._refuse_all(list(lock.waiters))
                self.table.forget(key)

        self._do(key, let_go)

    async def load(self, is_mine: Callable[[bytes], bool]) -> None:
        """Know what is recorded of these keys, so that leases end and idle keys are forgotten that no one asks for."""
        for name, record in await self._journal.load_all(is_mine):
            if self._turns.is_busy(name):
                continue
            message = self._journal.adopt(name, record)
            if message is not None:  # Nothing comes between this and the table.
                self.table.load(name, message, self.now_s())

    # -- time

    def _count_expired(self, count: int) -> None:
        self.on_expired(count)

    def sweep(self) -> None:
        for session, keeps_leases in list(self._leaving.items()):
            self._leave(session, keeps_leases=keeps_leases)
        for key in {holder.lock.name for holder in self.table.over(self.now_s())}:
            if not self._turns.is_busy(key):
                self._do(key, self._expires_and_grants(key))

    def _expires_and_grants(self, key: bytes) -> Act:
        return lambda now_s: self.table.expire_and_grant(key, now_s)

    async def collect(self) -> None:
        now_s = self.now_s()
        self.values.forget(now_s, self.options.idle_s_max)
        idle = self.table.idle(now_s, self.options.idle_s_max, FORGOTTEN_AT_ONCE_MAX)
        await self._turns.forget([lock.name for lock in idle])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything that is recorded is known when the block begins."""
        async with self._follower(), super().running():
            yield
        await self._turns.wait_idle()

    def _follower(self) -> Follower:
        """Of what other processes record, as they do while keys get another home."""
        bounds = LOCKS.bounds(HELD)
        return Follower(
            self._store, bounds, on_events=self._told, resync=self._resync, name="locks", demand=Demand()
        )

    def _told(self, events: list[Event]) -> None:
        for event in events:
            name = name_of(event.key)
            if self._turns.is_busy(name):
                self._turns.hear(name, event.revision)
                self._do(name, self._expires_and_grants(name))
            elif self._journal.is_older(name, event.revision):
                self._look_again(name)

    async def _resync(self) -> None:
        """At first everything is read; later anything may have been recorded meanwhile."""
        if not self._is_loaded:
            await self.load(lambda name: True)
            self._is_loaded = True
            return
        for lock in list(self.table.locks):
            if not self._turns.is_busy(lock.name):
                self._look_again(lock.name)

    def _look_again(self, key: bytes) -> None:
        self._journal.doubt(key)
        self._do(key, self._expires_and_grants(key))
