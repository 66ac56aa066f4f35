"""The turns of each key: what is done to it is recorded before the next requests for it are looked at.

    idle --a request that changes nothing--> idle
    idle --a request that changes who holds the key--> busy --the record is durable--> it is told; the next requests, or idle
    busy --it can't be recorded--> the table is as before, the requests are refused
    busy --another process was faster--> the record is loaded, the requests are judged again

Requests that come while a key is busy share its next turn. Different keys do not wait for each other; the store makes one group of
what is recorded in one turn of the loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.leases.layer.locks.durable.journal import LockJournal
from holdfast.leases.layer.locks.durable.request import Request
from holdfast.leases.layer.locks.durable.table import DurableTable, Steps
from holdfast.leases.layer.locks.records import Refused, Waiter
from holdfast.storage.errors import Conflict, StorageError

ATTEMPTS_MAX: Final = 16

_log = get_logger("leases.locks")

Watch = Callable[[Waiter, float], object]


class KeyTurns:
    """`watch` is told of each waiter and for how long it waits."""

    def __init__(
        self,
        table: DurableTable,
        journal: LockJournal,
        now_s: Callable[[], float],
        watch: Watch,
        on_expired: Callable[[int], object],
    ) -> None:
        self._table = table
        self._journal = journal
        self._now_s = now_s
        self._watch = watch
        self._on_expired = on_expired
        self._backlogs: dict[bytes, list[Request]] = {}
        """Those that came while their key was busy; a key that is not here is idle."""
        self._news: dict[bytes, int] = {}
        """What another process recorded of a key while it was busy."""
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, name: bytes, revision: int) -> None:
        """Another process recorded something of a busy key: the next turn looks at it, if it does not know it by then."""
        self._news[name] = revision

    def is_busy(self, name: bytes) -> bool:
        return name in self._backlogs

    def ask(self, request: Request) -> bool:
        """Whether the outcome is there at once; else it is told later."""
        name = request.key
        backlog = self._backlogs.get(name)
        if backlog is not None:
            backlog.append(request)
            return False
        if not self._journal.knows(name):
            self._backlogs[name] = [request]
            self._spawn(name)
            return False
        steps = self._run([request])
        if self._is_doubtful([request]):
            steps.take_back()
            self._journal.doubt(name)
            self._backlogs[name] = [request]
            self._spawn(name)
            return False
        if steps.is_recorded:
            return request.waiter is None
        self._backlogs[name] = []
        self._spawn(name, [request], steps)
        return False

    async def forget(self, names: Sequence[bytes]) -> None:
        """Forget idle keys, all in one commit; if it fails they stay."""
        idle = [name for name in names if name not in self._backlogs and self._journal.knows(name)]
        if not idle:
            return
        self._backlogs.update((name, []) for name in idle)
        try:
            await self._journal.forget(idle)
            for name in idle:
                self._table.forget(name)
        except StorageError:
            pass  # Another time; the store itself tells of its trouble.
        finally:
            for name in idle:
                self._spawn(name)

    async def wait_idle(self) -> None:
        """Return when nothing is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    # -- one key

    def _spawn(self, name: bytes, requests: list[Request] | None = None, steps: Steps | None = None) -> None:
        task = asyncio.create_task(self._work(name, requests or [], steps), name="locks.record")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, name: bytes, requests: list[Request], steps: Steps | None) -> None:
        """Turn after turn, until no request for the key is left."""
        backlog = self._backlogs[name]
        while requests or backlog:
            if not requests:
                requests, backlog[:] = backlog[:], []
                if self._journal.is_older(name, self._news.pop(name, 0)):
                    self._journal.doubt(name)
            try:
                await self._take_turn(name, requests, steps)
            except Exception as error:  # noqa: BLE001 - the edge of this task: a defect must not keep the key busy for ever
                _log.error("locks.turn.failed", exception=error)
                self._fail(name, requests)
            requests, steps = [], None
        del self._backlogs[name]
        if self._table.lock(name) is None:
            self._journal.drop(name)

    async def _take_turn(self, name: bytes, requests: list[Request], steps: Steps | None) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                if steps is None:
                    is_loaded = await self._load(name)
                    steps = self._run(requests, is_loaded=is_loaded)
                    if not is_loaded and self._is_doubtful(requests):
                        steps.take_back()
                        steps = None
                        self._journal.doubt(name)
                        continue
                await self._record(name, steps)
            except Exception as error:
                if steps is not None:
                    steps.take_back()
                    steps = None
                self._journal.doubt(name)
                if not isinstance(error, HoldfastError):
                    raise
                if not isinstance(error, Conflict):
                    break
            else:
                self._conclude(requests, steps)
                return
        self._fail(name, requests)

    async def _load(self, name: bytes) -> bool:
        """Let the table have what is recorded; whether that had to be looked for."""
        if self._journal.knows(name):
            return False
        record = await self._journal.load(name)
        self._table.load(name, record, self._now_s())
        return True

    async def _record(self, name: bytes, steps: Steps) -> None:
        if not steps.is_recorded:
            lock = self._table.lock(name)
            assert lock is not None, "a key whose holders change is known"
            await self._journal.record(lock)

    def _run(self, requests: Sequence[Request], *, is_loaded: bool = False) -> Steps:
        steps = self._table.begin()
        now_s = self._now_s()
        if is_loaded:
            self._table.expire_and_grant(requests[0].key, now_s)
        for request in requests:
            request.run(now_s)
        return steps

    def _is_doubtful(self, requests: Sequence[Request]) -> bool:
        """A token that is not known here may have been granted by another process: that is looked up before it is refused."""
        return self._journal.is_shared and any(request.outcome is False for request in requests)

    def _fail(self, name: bytes, requests: Sequence[Request]) -> None:
        self._journal.doubt(name)
        for request in requests:
            request.finish(Refused.UNAVAILABLE)

    def _conclude(self, requests: Sequence[Request], steps: Steps) -> None:
        """It is durable: tell the outcomes."""
        for request in requests:
            if request.waiter is None:
                request.finish(request.outcome)
            elif request.waiter in request.waiter.lock.waiters:
                self._watch(request.waiter, request.timeout_s)
        for waiter, holder in steps.handed_over:
            waiter.finish(holder)
        if steps.ended:
            self._on_expired(steps.ended)
