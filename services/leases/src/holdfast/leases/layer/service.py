"""Leases: granted first come, first served, kept alive, released, ended by time.

Every rule is one storage transaction. What a transaction frees is told to the wait queue after its commit; the first
waiter there tries again, by another transaction. So memory decides who tries next, and only the store who holds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, unix_s
from holdfast.common.errors import Draining, HoldfastError
from holdfast.common.ids import new_xid
from holdfast.common.logging import get_logger
from holdfast.leases.layer import rules
from holdfast.leases.layer.errors import TooManyWaiters, Waiting
from holdfast.leases.layer.expiry import Expiries
from holdfast.leases.layer.follower import LeaseFollower
from holdfast.leases.layer.grant import AcquireParams, Claim, Description, Grant, Renewal
from holdfast.leases.layer.keepalive_batch import keep_many
from holdfast.leases.layer.records import HELD, LEASES
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.rules import Granted, Ids, current_of, forget_leases
from holdfast.leases.layer.wait_queue import Waiter, WaitQueues
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.port import Store, Transaction
from holdfast.txn.layer.port import Decider, Decision, Member

WAITERS_PER_KEY_MAX = 10_000
EXPIRE_RETRY_S = 1.0

_log = get_logger("api.http.router.acquire")


class LeaseService:
    """The leases of one store."""

    member_prefix: str = ""

    def __init__(
        self,
        store: Store,
        decider: Decider,
        clock: SteadyClock,
        *,
        on_end: Callable[[], None] = lambda: None,
        follows_all: bool = True,
    ) -> None:
        self._store = store
        self._is_shared = store.is_shared
        self._decider = decider
        self._clock = clock
        self._on_end = on_end
        self.on_expired: Callable[[int], None] = lambda count: None
        self._wait_queues = WaitQueues()
        self._is_closed_to_waiters = False
        self._expiries = Expiries(clock, self._expire)
        self._follower = LeaseFollower(
            store, clock, self._expiries, self._wait_queues, on_end, follows_all=follows_all
        )
        self._follower.expire = self._expire
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def active(self) -> int:
        """Leases that this process granted, or found when it started, and that are held still."""
        return len(self._expiries)

    @property
    def waiters(self) -> int:
        return self._wait_queues.waiters

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Know what is held, also by the doing of other processes, and end what is over, for the length of the block."""
        async with self._follower.running():
            self._spawn(self._expiries.run())
            self._spawn(self._follower.remote_expiries.run())
            try:
                with self._clock.stepping(self._clock_stepped):
                    yield
            finally:
                for task in list(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _clock_stepped(self) -> None:
        """A lease that was to end later may be over now."""
        self._expiries.look_again()
        self._follower.remote_expiries.look_again()
        self._wait_queues.notify_firsts()

    # -- acquire

    async def acquire(self, params: AcquireParams) -> Grant:
        """The lease, or Waiting when the caller's patience ends first, or Draining when the server's end does.
        Cancelling leaves no lease and no waiter."""
        if params.is_create_only or params.member not in self._wait_queues.by_key:
            # Create-only acquires never queue, so they cannot overtake waiters: they are refused at once.
            try:
                return await self._grant(params)
            except Waiting:
                if params.wait_s == 0:
                    raise
        elif params.wait_s == 0:
            raise await self._held_by_other(params.member)
        return await self._wait_in_queue(params)

    async def _wait_in_queue(self, params: AcquireParams) -> Grant:
        if self._wait_queues.length(params.member) >= WAITERS_PER_KEY_MAX:
            raise TooManyWaiters(f"{WAITERS_PER_KEY_MAX} callers wait for this key already", retry_after_s=1)
        waiter = self._wait_queues.enqueue(params.member)
        try:
            async with asyncio.timeout(params.wait_s):
                return await self._try_in_turn(params, waiter)
        except TimeoutError:
            raise await self._held_by_other(params.member) from None
        finally:
            self._wait_queues.leave(waiter)

    async def _try_in_turn(self, params: AcquireParams, waiter: Waiter) -> Grant:
        while not self._is_closed_to_waiters:
            if self._wait_queues.is_first(waiter):
                # The first waiter looks for itself: the lease may have ended before it was enqueued.
                waiter.begin_try()
                try:
                    return await self._grant(params)
                except Waiting as held:
                    self._wait_queues.wait_again(waiter, held.seen_revision)
                    expires_in_s = held.retry_after_s or 0.0
                if self._is_closed_to_waiters:
                    break
                # A lease of another process is ended here some time later than there; its end is this timeout.
                async with _quiet_timeout(expires_in_s):
                    await waiter.turn
            else:
                await waiter.turn
        raise Draining

    def send_waiters_away(self) -> None:
        """The server drains: what they wait for may outlive it, and a lease granted now would hold it up."""
        self._is_closed_to_waiters = True
        self._wait_queues.notify_all()

    async def _grant(self, params: AcquireParams) -> Grant:
        ids = Ids(new_xid(), params.txn_id or self._decider.mint())
        now_ms = self._clock.now_ms()
        freed: Sequence[Member] = ()

        def grant(tx: Transaction) -> Granted:
            nonlocal freed
            granted = rules.grant(tx, params, ids, now_ms, self._decider)
            freed = granted.freed
            return granted

        try:
            lease, current, _ = await self._store.transact(grant)
        except asyncio.CancelledError:
            # The commit may still happen. No client is left to hold what it grants, so it is given back.
            self._spawn(self._withdraw(params.member, ids.lease_id))
            self._spawn(self._tell_of_free(freed))
            raise
        self._expiries.set(params.member, lease.expires_at_ms)
        if self._is_shared:
            self._follower.granted(params.member, lease.fencing_token)
        if freed:
            self.freed([member for member in freed if member != params.member])
        if failpoint.ARMED:
            failpoint.hit("acquire.answer")
        return Grant(*ids, lease.fencing_token, unix_s(lease.expires_at_ms), current)

    def give_back(self, member: Member, grant: Grant) -> None:
        """Its holder was gone before it could be told."""
        self._spawn(self._withdraw(member, grant.lease_id))

    async def _withdraw(self, member: Member, lease_id: str) -> None:
        await self.withdraw(member, lease_id)

    async def withdraw(self, member: Member, lease_id: str) -> bool:
        """Clear this lease and nothing else, as if it had not been granted; whether it was still there."""
        now_ms = self._clock.now_ms()
        is_withdrawn = await self._store.transact(
            lambda tx: rules.withdraw(tx, member, lease_id, now_ms), in_commit_order=True
        )
        if is_withdrawn:
            self.freed([member])
        return is_withdrawn

    async def _held_by_other(self, member: Member) -> Waiting:
        description = await self.describe(member)
        lease = description.lease
        rest_s = 0.0 if lease is None else (lease.expires_at_ms - self._clock.now_ms()) / 1000
        return Waiting("lease already held", current_of(description.document), retry_after_s=max(rest_s, 1.0))

    # -- keepalive

    async def keepalive(self, member: Member, claim: Claim, ttl_s: int) -> int:
        """The new expiry in Unix seconds. The whole transaction is kept alive with its key."""
        renewal = Renewal(member, claim, ttl_s)

        now_ms = self._clock.now_ms()

        def keepalive(tx: Transaction) -> int:
            lease = rules.renew(tx, renewal, now_ms)
            if lease.is_explicit:
                self.keep_transaction(tx, lease.txn_id, lease.expires_at_ms, {member}, now_ms)
            return lease.expires_at_ms

        return self.renewed(member, await self._store.transact(keepalive))

    async def keepalive_many(self, renewals: Sequence[Renewal]) -> list[int | HoldfastError]:
        """For each of them what `keepalive` would answer or raise, in their order."""
        return await keep_many(self._store, self, renewals, self._clock)

    def keep_transaction(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, renewed: Set[Member], now_ms: int
    ) -> None:
        rules.keep_transaction(tx, txn_id, expires_at_ms, renewed, now_ms, self._decider)

    def renewed(self, member: Member, expires_at_ms: int) -> int:
        """The renewal is committed; returns the new end as its holder is told of it."""
        self._expiries.set(member, expires_at_ms)
        return unix_s(expires_at_ms)

    # -- release

    async def release(self, member: Member, claim: Claim, decision: Decision) -> None:
        """End the lease and its transaction. A lease that is gone is no error: it may be the second try."""
        now_ms = self._clock.now_ms()
        freed: Sequence[Member] = ()

        def release(tx: Transaction) -> None:
            nonlocal freed
            freed = rules.release(tx, member, claim, decision, now_ms, self._decider)

        if failpoint.ARMED:
            failpoint.hit("release.commit")
        try:
            await self._store.transact(release)
        except asyncio.CancelledError:
            self._spawn(self._tell_of_free(freed))
            raise
        self.freed(freed)
        if failpoint.ARMED:
            failpoint.hit("release.answer")

    async def _tell_of_free(self, members: Sequence[Member]) -> None:
        """Their caller is gone, but its commit may still happen: the waiters for them have to hear of it."""

        def look(tx: Transaction) -> list[Member]:
            leases = [(member, LEASES.get(tx, *member)) for member in members]
            return [member for member, lease in leases if lease is None or not lease.lease_id]

        self.freed(await self._store.transact(look, in_commit_order=True))

    # -- the resource manager's side

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        return [LEASES.key(*member) for member in members]

    def apply(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        """The leases of the transaction end, with either decision."""
        rules.apply(tx, txn_id, members, now_ms)

    def keep(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member], now_ms: int
    ) -> int:
        """The leases of the transaction belong together and live until then at least."""
        last_ms, moved = rules.keep(tx, txn_id, expires_at_ms, members)
        for member, end_ms in moved.items():
            self._expire_later(tx, member, end_ms)
        return last_ms

    # -- leases that another service hands out with something of its own

    def grant(
        self,
        tx: Transaction,
        member: Member,
        owner: str,
        ids: Ids,
        expires_at_ms: int,
        now_ms: int,
        *,
        is_explicit: bool,
    ) -> Lease:
        """An ordinary lease, on the state of a message that is there. LeaseHeld if another holder has it."""
        granted = rules.grant_message_state(
            tx,
            member,
            owner,
            ids,
            expires_at_ms,
            now_ms,
            self._decider,
            is_explicit=is_explicit,
        )
        self._expire_later(tx, member, expires_at_ms)
        if self._is_shared:
            tx.after_commit(lambda _: self._follower.granted(member, granted.fencing_token))
        return granted

    def extend(self, tx: Transaction, member: Member, claim: Claim, expires_at_ms: int, now_ms: int) -> None:
        """Let the lease end then; refused as keepalive refuses."""
        rules.extend(tx, member, claim, expires_at_ms, now_ms)
        self._expire_later(tx, member, expires_at_ms)

    def forget(self, tx: Transaction, member: Member) -> None:
        """The key goes with the message whose state it was; a later key of that name begins above its token."""
        lease = LEASES.get(tx, *member)
        if lease is not None:
            forget_leases(tx, {member: lease})
            tx.delete(HELD.key(lease.txn_id, *member))
            tx.after_commit(lambda _: self.freed([member]))

    def freed(self, members: Sequence[Member]) -> None:
        """A decision was committed: these keys are free."""
        for member in members:
            self._expiries.forget(member)
            if self._is_shared:
                self._follower.ended(member)
            if member in self._wait_queues.by_key:
                self._wait_queues.notify(member)
        if members:
            self._on_end()

    # -- describe

    async def describe(self, member: Member) -> Description:
        found = await self._store.get_many([LEASES.key(*member), DOCUMENTS.key(*member)])
        lease_record = found.get(LEASES.key(*member))
        document_record = found.get(DOCUMENTS.key(*member))
        lease = None if lease_record is None else LEASES.decode(lease_record)
        document = None if document_record is None else DOCUMENTS.decode(document_record)
        updated_at_s = max(
            lease.updated_at_s if lease is not None else 0,
            document.updated_at_s if document is not None else 0,
        )
        if lease is None or not lease.lease_id or lease.expires_at_ms <= self._clock.now_ms():
            return Description(None, 0, document, updated_at_s)
        return Description(lease, unix_s(lease.expires_at_ms), document, updated_at_s)

    # -- expiry

    async def _expire(self, member: Member, known: Expiries[Member] | None = None) -> None:
        known = self._expiries if known is None else known
        now_ms = self._clock.now_ms()

        def expire(tx: Transaction) -> Sequence[Member]:
            lease = LEASES.get(tx, *member)
            if lease is not None and lease.lease_id and lease.expires_at_ms > now_ms:
                known.set(member, lease.expires_at_ms)  # Another process kept it alive.
                return ()
            return rules.end_if_over(tx, member, now_ms, self._decider)

        try:
            freed = await self._store.transact(expire)
            self.freed(freed)
            self.on_expired(len(freed))
        except HoldfastError as error:
            warn_unless_told(_log, "lease.expire.failed", error)
            known.set(member, self._clock.now_ms() + int(EXPIRE_RETRY_S * 1000))

    async def end_expired(self, member: Member) -> None:
        """End a lease whose time is over and that this process may not know of: the one that granted it is gone."""
        await self._expire(member)

    # -- small parts

    def _expire_later(self, tx: Transaction, member: Member, expires_at_ms: int) -> None:
        tx.after_commit(lambda _: self._expiries.set(member, expires_at_ms))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="leases")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("leases.task.failed", exception=error)


@asynccontextmanager
async def _quiet_timeout(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        pass
