"""Clients that work on a few keys at once, some of them pausing for longer than their lease lives, and what they saw."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tests.system.leases.fast_time import SPEED, FastLoop
from tests.system.leases.model import REFUSED, Granted, Operation
from tests.system.leases.wire import Held, WireAnswer, WireClient

CLIENTS: Final = 8
KEYS: Final = 3
TTL_S: Final = 1
PAUSE_S: Final = 2.2
"""Longer than a lease can last: its end is a whole second, rounded up."""

T = TypeVar("T")


def now_s() -> float:
    """As the plane's clock counts, see `lease_time.FastClock`."""
    return time.monotonic() * SPEED


@dataclass(slots=True)
class History:
    """The operations of one run, complete when all clients have ended."""

    name: str
    size: int
    operations: list[Operation] = field(default_factory=list)
    begun: int = 0

    @property
    def is_full(self) -> bool:
        return self.begun >= self.size


class HistoryClient:
    """One client. What it does depends on its seed alone; what comes of it on the others."""

    def __init__(self, number: int, wire: WireClient, history: History, rng: random.Random) -> None:
        self._number = number
        self._wire = wire
        self._history = history
        self._rng = rng
        self._writes = 0

    async def run(self) -> None:
        while not self._history.is_full:
            key = f"{self._history.name}-{self._rng.randrange(KEYS)}"
            if self._rng.random() < 0.3:
                await self._read(key)
            held = await self._acquire(key)
            if held is not None:
                await self._hold(held)

    async def _hold(self, held: Held) -> None:
        for _ in range(self._rng.randint(1, 3)):
            await self._rng.choice((self._update, self._update, self._read_own, self._keepalive))(held)
        if self._rng.random() < 0.1:
            await asyncio.sleep(PAUSE_S)
            await self._rng.choice((self._update, self._keepalive, self._read_own))(held)
        await self._release(held)

    async def _acquire(self, key: str) -> Held | None:
        wait_s = self._rng.choice((-1, -1, 1))
        start_s = self._begin()
        held = await self._wire.acquire(key, f"client-{self._number}", ttl_s=TTL_S, wait_s=wait_s)
        result = REFUSED if held is None else Granted(held.lease_id, held.token, held.version)
        self._end("acquire", key, start_s, value=wait_s, result=result)
        return held

    async def _keepalive(self, held: Held) -> None:
        start_s = self._begin()
        answer = await self._wire.keepalive(held, TTL_S)
        self._end("keepalive", held.key, start_s, held, result=_told(answer, lambda: None))

    async def _update(self, held: Held) -> None:
        self._writes += 1
        value = f"{self._number}.{self._writes}"
        start_s = self._begin()
        answer = await self._wire.update(held, value)
        result = _told(answer, lambda: answer.members()["new_version"])
        self._end("update", held.key, start_s, held, value=value, result=result)

    async def _read_own(self, held: Held) -> None:
        start_s = self._begin()
        try:
            result = await self._wire.read_leased(held)
        except AssertionError:
            result = REFUSED
        self._end("read_own", held.key, start_s, held, result=result)

    async def _release(self, held: Held) -> None:
        decision = "rollback" if self._rng.random() < 0.2 else "commit"
        start_s = self._begin()
        answer = await self._wire.release(held, rollback=decision == "rollback")
        assert answer.status == 200, answer
        self._end("release", held.key, start_s, held, value=decision)

    async def _read(self, key: str) -> None:
        start_s = self._begin()
        self._end("read", key, start_s, result=await self._wire.read(key))

    def _begin(self) -> float:
        self._history.begun += 1
        return now_s()

    def _end(
        self,
        name: str,
        key: str,
        start_s: float,
        held: Held | None = None,
        *,
        value: object = None,
        result: object = None,
    ) -> None:
        lease_id = "" if held is None else held.lease_id
        self._history.operations.append(
            Operation(self._number, key, name, start_s, now_s(), lease_id, value, result, TTL_S)
        )


def _told(answer: WireAnswer, read: Callable[[], object]) -> object:
    if answer.status == 200:
        return read()
    assert answer.status in {403, 409}, answer
    return REFUSED


async def record(port: int, name: str, seed: int, size: int) -> History:
    """Run the clients until together they have begun `size` operations."""
    history = History(name, size)
    wires = [await WireClient.connect(port) for _ in range(CLIENTS)]
    clients = [
        HistoryClient(number, wire, history, random.Random(seed * CLIENTS + number))
        for number, wire in enumerate(wires)
    ]
    try:
        await asyncio.gather(*[client.run() for client in clients])
    finally:
        for wire in wires:
            wire.close()
    return history


def run_fast(work: Callable[[], Awaitable[T]]) -> T:
    """Run in a loop of its own in which time is short."""

    async def main() -> T:
        return await work()

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(main())
