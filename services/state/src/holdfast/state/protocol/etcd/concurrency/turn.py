"""Turns at a name: each who wants one puts a key of its own, and the oldest key has the turn.

    name/1a  put at revision 7   <- has the turn
    name/2b  put at revision 9   waits for the end of name/1a
    name/3c  put at revision 12  waits for the end of name/2b

A key ends when it is deleted, or with its lease; each waits for the one before it alone, so one end wakes one.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, closing
from typing import Any, Final, NamedTuple

from holdfast.common.errors import Draining, HoldfastError, ShutdownDraining
from holdfast.common.logging import get_logger
from holdfast.common.serving.drain import Waits
from holdfast.state.layer.kv.errors import KeyMissing, KvLeaseNotFound
from holdfast.state.layer.kv.operation import (
    Compare,
    CompareTarget,
    DeleteRangeRequest,
    KeyValue,
    Operation,
    PutRequest,
    RangeRequest,
    RangeResult,
    SortOrder,
    SortTarget,
    TxnRequest,
    TxnResult,
    WatchRequest,
)
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.layer.kv.watch import WatchCompacted
from holdfast.state.protocol.etcd.wire.errors import SessionExpired

LEASE_TTL_S: Final = 60
"""Of a lease that is granted to a caller who brings none."""
RENEWALS_PER_TTL: Final = 3

_log = get_logger("state.kv.turn")


class Turn(NamedTuple):
    """`revision` is that of the key space when it was looked at last."""

    key: bytes
    create_revision: int
    lease: int
    ttl_s: int
    revision: int
    is_new: bool
    """This call put the key."""
    has_own_lease: bool
    """This call granted the lease."""


def keys_of(name: bytes) -> tuple[bytes, bytes]:
    """The bounds of the keys of a name."""
    return name + b"/", name + b"0"


class Turns:
    """Who waits here leaves when the caller goes away, or when the server drains."""

    def __init__(self, service: KeySpace, waits: Waits) -> None:
        self._service = service
        self._waits = waits
        self._withdrawals: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """At the end of the block nothing is still being taken back."""
        try:
            yield
        finally:
            await asyncio.gather(*self._withdrawals)

    async def take(self, name: bytes, lease: int, value: bytes = b"") -> Turn:
        """Wait for the turn of the lease; zero: of one that is granted for it."""
        if not name:
            raise KeyMissing
        entering = asyncio.ensure_future(self._enter(name, lease, value))
        try:
            turn = await asyncio.shield(entering)
            revision = await self._waits.until_drain(self._wait(name, turn))
        except BaseException as error:
            self._later(self._leave(entering))
            if isinstance(error, Draining):
                raise ShutdownDraining("the server stops, and with it the wait", retry_after_s=1) from None
            raise
        return turn._replace(revision=revision)

    def give_back(self, turn: Turn) -> None:
        """Its caller never heard of it."""
        self._later(self._withdraw(turn))

    async def first(self, name: bytes) -> RangeResult:
        """Whose turn it is."""
        return await self._look(name, SortOrder.ASCEND)

    async def change(self, key: bytes, create_revision: int, operation: Operation) -> TxnResult:
        """Do something to a key if it is still the one that was put at this revision."""
        is_same = Compare(key, target=CompareTarget.CREATE, operand=create_revision)
        return await self._service.txn(TxnRequest((is_same,), (operation,)))

    # -- inside

    async def _enter(self, name: bytes, lease: int, value: bytes) -> Turn:
        has_own_lease = not lease
        if has_own_lease:
            lease, ttl_s = await self._service.leases.grant(LEASE_TTL_S)
        else:
            ttl_s = await self._service.leases.keep_alive(lease)
            if not ttl_s:
                raise KvLeaseNotFound
        key = b"%b/%x" % (name, lease)
        is_absent = Compare(key, target=CompareTarget.CREATE, operand=0)
        result = await self._service.txn(
            TxnRequest((is_absent,), (PutRequest(key, value, lease),), (RangeRequest(key),))
        )
        found = result.results[0]
        created = found.kvs[0].create_revision if isinstance(found, RangeResult) else result.revision
        return Turn(key, created, lease, ttl_s, result.revision, result.succeeded, has_own_lease)

    async def _wait(self, name: bytes, turn: Turn) -> int:
        has_waited = False
        while True:
            found = await self._look(name, SortOrder.DESCEND, older_than=turn.create_revision)
            if not found.kvs:
                return await self._checked(turn) if has_waited else found.revision
            has_waited = True
            await self._until_gone(found.kvs[0], found.revision, turn)

    async def _until_gone(self, kv: KeyValue, revision: int, turn: Turn) -> None:
        """Its own lease is kept alive meanwhile: it is the caller who waits, and it is here."""
        request = WatchRequest(kv.key, start_revision=revision + 1, no_put=True)
        with closing(await self._service.watch(request)) as watch:
            while True:
                try:
                    async with asyncio.timeout(turn.ttl_s / RENEWALS_PER_TTL):
                        await watch.next()
                except TimeoutError:
                    if not await self._service.leases.keep_alive(turn.lease):
                        raise SessionExpired from None
                except WatchCompacted:
                    return
                else:
                    return

    async def _checked(self, turn: Turn) -> int:
        found = await self._service.range(RangeRequest(turn.key, keys_only=True))
        if not found.kvs or found.kvs[0].create_revision != turn.create_revision:
            raise SessionExpired
        return found.revision

    async def _look(self, name: bytes, order: SortOrder, *, older_than: int = 0) -> RangeResult:
        """The oldest key of a name, or the newest of those that are older than another."""
        start, end = keys_of(name)
        return await self._service.range(
            RangeRequest(
                start,
                end,
                limit=1,
                sort_order=order,
                sort_target=SortTarget.CREATE,
                max_create_revision=older_than - 1 if older_than else 0,
            )
        )

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="etcd.turn.withdraw")
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    async def _leave(self, entering: asyncio.Future[Turn]) -> None:
        """The caller may be gone before its key is there."""
        try:
            turn = await entering
        except HoldfastError:
            return  # There is none: the caller was told why, if it was there.
        await self._withdraw(turn)

    async def _withdraw(self, turn: Turn) -> None:
        if not turn.is_new:
            return  # An earlier call put it, and may count on it.
        try:
            if turn.has_own_lease:
                await self._service.leases.revoke(turn.lease)
            else:
                await self.change(turn.key, turn.create_revision, DeleteRangeRequest(turn.key))
        except HoldfastError as error:
            _log.warn("kv.turn.withdraw.failed", reason=error.detail)  # Then it ends with its lease.
