"""Leases: granted first come, first served, kept alive, released, ended by time.

Every rule is one storage transaction. What a transaction frees is told to the wait queue after its commit; the first
waiter there tries again, by another transaction. So memory decides who tries next, and only the store who holds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any

from holdfast.common import failpoint
from holdfast.common.clock import SteadyClock, end_ms, unix_s
from holdfast.common.drain import Draining
from holdfast.common.errors import HoldfastError
from holdfast.common.ids import new_xid
from holdfast.common.logging import get_logger
from holdfast.leases.layer.claim import (
    Claim,
    Current,
    FencingMismatch,
    KeyRefusal,
    LeaseExpired,
    LeaseRequired,
    check_claim,
)
from holdfast.leases.layer.errors import AlreadyExists, TooManyWaiters, Waiting
from holdfast.leases.layer.expiry import Expiries
from holdfast.leases.layer.floor import FIRST_OF_MESSAGE, first_reads, forget_leases, read_new
from holdfast.leases.layer.follower import LeaseFollower
from holdfast.leases.layer.grant import AcquireParams, Description, Grant
from holdfast.leases.layer.keepalive_batch import Renewal, keep_many
from holdfast.leases.layer.records import LEASES, held_key, held_members
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.wait_queue import Waiter, WaitQueues
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.keys import next_key
from holdfast.storage.port import Store, Transaction
from holdfast.storage.trouble import warn_unless_told
from holdfast.txn.layer.port import Decider, Decision, LeaseHeld, Member

WAITERS_PER_KEY_MAX = 10_000
EXPIRE_RETRY_S = 1.0

_log = get_logger("api.http.router.acquire")


class LeaseService:
    """The leases of one store."""

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
            self._spawn(self._follower.elsewhere.run())
            try:
                with self._clock.stepping(self._clock_stepped):
                    yield
            finally:
                for task in list(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _clock_stepped(self) -> None:
        """Whatever was to end later may be over now."""
        self._expiries.look_again()
        self._follower.elsewhere.look_again()
        self._wait_queues.notify_firsts()

    # -- acquire

    async def acquire(self, params: AcquireParams) -> Grant:
        """The lease, or Waiting when the caller's patience ends first, or Draining when the server's end does.
        Cancelling leaves no lease and no waiter."""
        if params.is_create_only or not self._wait_queues.is_waited_for(params.member):
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
        lease_id = new_xid()
        txn_id = params.txn_id or new_xid()
        freed: list[Member] = []

        def grant(tx: Transaction) -> tuple[Lease, Current]:
            freed.clear()
            return self._grant_in(tx, params, lease_id, txn_id, freed)

        try:
            lease, current = await self._store.transact(grant)
        except asyncio.CancelledError:
            # The commit may still happen. Nobody is left to hold what it grants, so it is given back.
            self._spawn(self._withdraw(params.member, lease_id))
            self._spawn(self._tell_of_free(freed))
            raise
        self._expiries.set(params.member, lease.expires_at_ms)
        self._follower.granted(params.member, lease.fencing_token)
        self.freed([member for member in freed if member != params.member])
        if failpoint.ARMED:
            failpoint.hit("acquire.answer")
        return Grant(lease_id, txn_id, lease.fencing_token, unix_s(lease.expires_at_ms), current)

    def _grant_in(
        self, tx: Transaction, params: AcquireParams, lease_id: str, txn_id: str, freed: list[Member]
    ) -> tuple[Lease, Current]:
        member = params.member
        tx.prefetch(lambda: first_reads(member))
        lease = LEASES.get(tx, *member)
        if lease is None:
            document, first_token = read_new(tx, member)
        else:
            document, first_token = DOCUMENTS.get(tx, *member), 0
        current = Current.of(document)
        if params.is_create_only and (lease is not None or document is not None):
            raise AlreadyExists("key already exists", current)
        now_ms = self._clock.now_ms()
        if lease is not None and lease.lease_id:
            if lease.expires_at_ms > now_ms:
                held = Waiting(
                    "lease already held", current, retry_after_s=(lease.expires_at_ms - now_ms) / 1000
                )
                record = tx.get(LEASES.key(*member))
                held.seen_revision = 0 if record is None else record.mod_revision
                raise held
            freed += self._end(tx, member, lease, Decision.ROLLBACK)
            lease = LEASES.get(tx, *member)
        expires_at_ms = end_ms(now_ms, params.ttl_s)
        if params.txn_id:
            # Everybody in the transaction belongs to it from now on, also the key that minted its id.
            members = held_members(tx, txn_id)
            expires_at_ms = self._decider.join(tx, txn_id, expires_at_ms, members, member)
        granted = Lease(
            lease_id=lease_id,
            owner=params.owner,
            txn_id=txn_id,
            is_explicit=bool(params.txn_id),
            expires_at_ms=expires_at_ms,
            fencing_token=lease.fencing_token + 1 if lease is not None else first_token,
            updated_at_s=now_ms // 1000,
        )
        LEASES.put(tx, granted, *member)
        tx.put(held_key(txn_id, member), b"")
        return granted, current

    def give_back(self, member: Member, grant: Grant) -> None:
        """Its holder was gone before it could be told."""
        self._spawn(self._withdraw(member, grant.lease_id))

    async def _withdraw(self, member: Member, lease_id: str) -> None:
        await self.withdraw(member, lease_id)

    async def withdraw(self, member: Member, lease_id: str) -> bool:
        """Clear this lease and nothing else, as if it had not been granted; whether it was still there."""

        def withdraw(tx: Transaction) -> list[Member]:
            lease = _lease_in_the_end(tx, member)
            if lease is None or lease.lease_id != lease_id:
                return []
            LEASES.put(tx, _cleared(lease, self._clock.now_ms()), *member)
            tx.delete(held_key(lease.txn_id, member))
            return [member]

        freed = await self._store.transact(withdraw)
        self.freed(freed)
        return bool(freed)

    async def _held_by_other(self, member: Member) -> Waiting:
        description = await self.describe(member)
        lease = description.lease
        rest_s = 0.0 if lease is None else (lease.expires_at_ms - self._clock.now_ms()) / 1000
        return Waiting("lease already held", Current.of(description.document), retry_after_s=max(rest_s, 1.0))

    # -- keepalive

    async def keepalive(self, member: Member, claim: Claim, ttl_s: int) -> int:
        """The new expiry in Unix seconds. The whole transaction is kept alive with its key."""
        renewal = Renewal(member, claim, ttl_s)

        def keepalive(tx: Transaction) -> int:
            lease = self.renew(tx, renewal)
            if lease.is_explicit:
                self.keep_transaction(tx, lease.txn_id, lease.expires_at_ms, {member})
            return lease.expires_at_ms

        return self.renewed(member, await self._store.transact(keepalive))

    async def keepalive_many(self, renewals: Sequence[Renewal]) -> list[int | HoldfastError]:
        """For each of them what `keepalive` would answer or raise, in their order."""
        return await keep_many(self._store, self, renewals)

    def renew(self, tx: Transaction, renewal: Renewal) -> Lease:
        """Move the end of one lease, if the caller holds it."""
        now_ms = self._clock.now_ms()
        lease = self._checked(tx, renewal.member, renewal.claim, now_ms)
        lease.expires_at_ms = end_ms(now_ms, renewal.ttl_s)
        lease.updated_at_s = now_ms // 1000
        LEASES.put(tx, lease, *renewal.member)
        return lease

    def keep_transaction(
        self, tx: Transaction, txn_id: str, expires_at_ms: int, renewed: Set[Member]
    ) -> None:
        """The other leases of the transaction live until then at least."""
        others = [other for other in held_members(tx, txn_id) if other not in renewed]
        self._decider.keep(tx, txn_id, expires_at_ms, others)

    def renewed(self, member: Member, expires_at_ms: int) -> int:
        """The renewal is committed; returns the new end as its holder is told of it."""
        self._expiries.set(member, expires_at_ms)
        return unix_s(expires_at_ms)

    # -- release

    async def release(self, member: Member, claim: Claim, decision: Decision) -> None:
        """End the lease and its transaction. A lease that is gone is no error: it may be the second try."""

        freed: list[Member] = []

        def release(tx: Transaction) -> None:
            freed[:] = self._release_in(tx, member, claim, decision)

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

    def _release_in(self, tx: Transaction, member: Member, claim: Claim, decision: Decision) -> list[Member]:
        tx.prefetch(lambda: self._decider.reads(claim.txn_id or "", [member]))
        try:
            lease = self._checked(tx, member, claim, self._clock.now_ms())
        except LeaseExpired:
            return self._end_if_over(tx, member)
        except (LeaseRequired, FencingMismatch):
            return []
        return self._end(tx, member, lease, decision)

    async def _tell_of_free(self, members: Sequence[Member]) -> None:
        """Their caller is gone, but its commit may still happen: the waiters for them have to hear of it."""

        def look(tx: Transaction) -> list[Member]:
            leases = [(member, _lease_in_the_end(tx, member)) for member in members]
            return [member for member, lease in leases if lease is None or not lease.lease_id]

        self.freed(await self._store.transact(look))

    def _end(self, tx: Transaction, member: Member, lease: Lease, decision: Decision) -> list[Member]:
        """Decide for the whole transaction; its keys are free afterwards."""
        if not lease.is_explicit:
            self._decider.end(tx, lease.txn_id, decision, [member])
            return [member]
        members = held_members(tx, lease.txn_id)
        self._decider.decide(tx, lease.txn_id, decision, members)
        return members

    def reads(self, txn_id: str, members: Sequence[Member]) -> Sequence[bytes]:
        return [LEASES.key(*member) for member in members]

    def apply(self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        """As a resource manager: whatever was decided, the leases of the transaction end."""
        now_ms = self._clock.now_ms()
        for member in members:
            lease = LEASES.get(tx, *member)
            if lease is not None and lease.lease_id and lease.txn_id == txn_id:
                LEASES.put(tx, _cleared(lease, now_ms), *member)
            tx.delete(held_key(txn_id, member))

    def keep(self, tx: Transaction, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        """As a resource manager: the leases of the transaction belong together and live until then at least."""
        last_ms = 0
        for member in members:
            lease = LEASES.get(tx, *member)
            if lease is None or lease.txn_id != txn_id:
                continue
            if not lease.is_explicit or lease.expires_at_ms < expires_at_ms:
                lease.is_explicit = True
                lease.expires_at_ms = max(lease.expires_at_ms, expires_at_ms)
                LEASES.put(tx, lease, *member)
                self._expire_later(tx, member, lease.expires_at_ms)
            last_ms = max(last_ms, lease.expires_at_ms)
        return last_ms

    # -- leases that another service hands out with something of its own

    def grant(
        self,
        tx: Transaction,
        member: Member,
        owner: str,
        txn_id: str,
        expires_at_ms: int,
        *,
        is_explicit: bool,
    ) -> Lease:
        """An ordinary lease, on the state of a message that is there. LeaseHeld if another caller has it."""
        lease = LEASES.get(tx, *member)
        now_ms = self._clock.now_ms()
        if lease is not None and lease.lease_id:
            if lease.expires_at_ms > now_ms:
                raise LeaseHeld(lease.expires_at_ms)
            self._end(tx, member, lease, Decision.ROLLBACK)
        granted = Lease(
            lease_id=new_xid(),
            owner=owner,
            txn_id=txn_id,
            is_explicit=is_explicit,
            expires_at_ms=expires_at_ms,
            fencing_token=lease.fencing_token + 1 if lease is not None else FIRST_OF_MESSAGE,
            updated_at_s=now_ms // 1000,
        )
        LEASES.put(tx, granted, *member)
        tx.put(held_key(txn_id, member), b"")
        self._expire_later(tx, member, expires_at_ms)
        tx.after_commit(lambda _: self._follower.granted(member, granted.fencing_token))
        return granted

    def extend(self, tx: Transaction, member: Member, claim: Claim, expires_at_ms: int) -> None:
        """Let the lease end then; refused as keepalive refuses."""
        lease = self._checked(tx, member, claim, self._clock.now_ms())
        lease.expires_at_ms = expires_at_ms
        LEASES.put(tx, lease, *member)
        self._expire_later(tx, member, expires_at_ms)

    def forget(self, tx: Transaction, member: Member) -> None:
        """The key goes with the message whose state it was; a later key of that name begins above its token."""
        lease = LEASES.get(tx, *member)
        if lease is not None:
            forget_leases(tx, {member: lease})
            tx.delete(held_key(lease.txn_id, member))
            tx.after_commit(lambda _: self.freed([member]))

    def freed(self, members: Sequence[Member]) -> None:
        """A decision was committed: these keys are free."""
        for member in members:
            self._expiries.forget(member)
            self._follower.ended(member)
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

    async def _expire(self, member: Member, known: Expiries | None = None) -> None:
        known = self._expiries if known is None else known

        def expire(tx: Transaction) -> list[Member]:
            lease = LEASES.get(tx, *member)
            if lease is not None and lease.lease_id and lease.expires_at_ms > self._clock.now_ms():
                known.set(member, lease.expires_at_ms)  # Another process kept it alive.
                return []
            return self._end_if_over(tx, member)

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

    def _end_if_over(self, tx: Transaction, member: Member) -> list[Member]:
        lease = LEASES.get(tx, *member)
        if lease is None or not lease.lease_id or lease.expires_at_ms > self._clock.now_ms():
            return []
        return self._end(tx, member, lease, Decision.ROLLBACK)

    # -- small parts

    def _checked(self, tx: Transaction, member: Member, claim: Claim, now_ms: int) -> Lease:
        lease = LEASES.get(tx, *member)
        try:
            return check_claim(claim, lease, now_ms)
        except KeyRefusal as refusal:
            refusal.current = Current.of(DOCUMENTS.get(tx, *member))
            raise

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


def _lease_in_the_end(tx: Transaction, member: Member) -> Lease | None:
    """By a range, because that is compared in the order of commits: what is still on its way is not overlooked."""
    key = LEASES.key(*member)
    tx.range(key, next_key(key), limit=1, expected=True)
    return LEASES.get(tx, *member)


def _cleared(lease: Lease, now_ms: int) -> Lease:
    """Nobody's, but its token stays: the next holder's must be higher."""
    return Lease(fencing_token=lease.fencing_token, updated_at_s=now_ms // 1000)
