"""A durable lock service over a store whose commits a test lets through, fails or loses; and clients that are told."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from holdfast.common.clock import FakeClock
from holdfast.leases.layer.locks.durable.records import LOCKS, record_key
from holdfast.leases.layer.locks.durable.service import DurableLockService
from holdfast.leases.layer.locks.records import Grant, Outcome, Pending, Session
from holdfast.leases.layer.locks.service import LockOptions
from holdfast.storage.errors import StoreReadOnly, StoreUnavailable
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.store import LocalStore
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store
from holdfast.storage.store_clock import StoreClock

T = TypeVar("T")


class HeldStore:
    """A memory store, the same for every life of a service; of one life, commits wait until the test decides."""

    def __init__(self, store: LocalStore, clock: StoreClock | None = None) -> None:
        self._store = store
        self.clock = clock or store.clock
        self.is_shared = False
        self.waiting: list[asyncio.Future[bool]] = []
        self.is_holding = False
        self.is_dead = False
        """The process that had it is gone: nothing of it is committed any more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> int:
        if self.is_dead:
            raise StoreUnavailable("its process is gone")
        if self.is_holding:
            gate: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self.waiting.append(gate)
            if not await gate:
                raise StoreReadOnly("it takes no writes now")
        return await self._store.commit(batch)

    def let(self, *, succeed: bool) -> None:
        waiting, self.waiting = self.waiting, []
        for gate in waiting:
            gate.set_result(succeed)


def memory_store(clock: FakeClock | None = None) -> LocalStore:
    options = StoreOptions() if clock is None else StoreOptions(clock=clock)
    return LocalStore(url="mem://", engine=MemoryEngine(), options=options)


def service_over(store: HeldStore | LocalStore, options: LockOptions) -> DurableLockService:
    return DurableLockService(options, cast(Store, store))


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of what waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return cast(T, ended.value)
    raise AssertionError("it waits")


def recorded_tokens(store: LocalStore, key: bytes) -> list[bytes]:
    """Who holds the key, as the store has it."""
    record = at_once(store.get(record_key(key)))
    return [] if record is None else [slot.token.hex().encode() for slot in LOCKS.decode(record).slots]


async def turns() -> None:
    """Let everything happen that waits for nothing but the loop."""
    for _ in range(50):
        await asyncio.sleep(0)


class Call:
    """One request and what it came to."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.is_told = asyncio.Event()

    def tell(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.is_told.set()

    def begun(self, found: Outcome | Pending) -> "Call":
        if not isinstance(found, Pending):
            self.outcomes.append(found)
        return self

    @property
    def outcome(self) -> Outcome:
        (outcome,) = self.outcomes
        return outcome

    @property
    def token(self) -> bytes:
        assert isinstance(self.outcome, Grant)
        return self.outcome.token


class Client:
    """One session."""

    def __init__(self, service: DurableLockService, address: str = "") -> None:
        self.service = service
        self.session: Session = service.begin_session(address)

    def acquire(self, key: bytes, limit: int = 1, ttl_s: int = 30, timeout_s: float = 0) -> Call:
        call = Call()
        return call.begun(self.service.acquire(self.session, key, limit, ttl_s, timeout_s, call.tell))

    def enqueue(self, key: bytes, limit: int = 1, ttl_s: int = 30) -> Call:
        call = Call()
        return call.begun(self.service.enqueue(self.session, key, limit, ttl_s, call.tell))

    def wait(self, key: bytes, timeout_s: float = 0) -> Call:
        call = Call()
        return call.begun(self.service.wait(self.session, key, timeout_s, call.tell))

    def release(self, key: bytes, token: bytes) -> Call:
        call = Call()
        return call.begun(self.service.release(self.session, key, token, call.tell))

    def renew(self, key: bytes, token: bytes, ttl_s: int = 30) -> Call:
        call = Call()
        return call.begun(self.service.renew(self.session, key, token, ttl_s, call.tell))

    def vanish(self) -> None:
        self.service.end_session(self.session)
