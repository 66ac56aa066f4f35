"""Producers and consumers of a plane that is killed again and again, and what each of them was told."""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, NamedTuple

from tests.system.leases.wire import WireAnswer, WireClient
from tests.wire.lockd.queue_wire import MULTIPART, Delivered, deliveries, message_body

QUEUE: Final = "soak"
VISIBILITY_S: Final = 4
ATTEMPTS_MAX: Final = 1000  # Of a message that is fine: however often the plane dies, it is never given up.
POISON_ATTEMPTS_MAX: Final = 3
POISON_EACH: Final = 25
CONSUMER_DEATHS: Final = 0.01


class End(Enum):
    """What became of a delivery, as its consumer knows it."""

    ACKED = "acked"
    NACKED = "nacked"
    REFUSED = "refused"
    UNKNOWN = "unknown"  # Asked for, never answered.
    HUNG_UP = "hung up"


class Taken(NamedTuple):
    """One delivery as its consumer knows it."""

    token: int
    taken_at_s: float
    ended_at_s: float
    end: End


class Ledger:
    """What was told, by message."""

    def __init__(self) -> None:
        self.enqueued: dict[str, bytes] = {}
        self.unknown_payloads: set[bytes] = set()
        self.delivered: dict[str, list[Taken]] = defaultdict(list)
        self.payloads: dict[str, bytes] = {}
        self.acked: dict[str, int] = {}
        self.perhaps_acked: set[str] = set()


class Actor:
    """A client with a connection of its own, which it makes anew whenever it breaks."""

    def __init__(self, port: int, ledger: Ledger, rng: random.Random) -> None:
        self._port = port
        self._ledger = ledger
        self._rng = rng
        self._wire: WireClient | None = None

    async def call(self, work: Callable[[WireClient], Awaitable[WireAnswer]]) -> WireAnswer | None:
        """None: how it ended is unknown."""
        try:
            if self._wire is None:
                self._wire = await WireClient.connect(self._port)
        except OSError:
            await asyncio.sleep(0.05)
            return None
        try:
            answer = await work(self._wire)
        except (OSError, EOFError):
            self.hang_up()
            return None
        return answer

    def hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class Producer(Actor):
    """Sends its messages one after the other, each until it is told that it is stored."""

    async def run(self, name: str, count: int) -> None:
        for number in range(count):
            attempt = 0
            while not await self._enqueue(f"{name}-{number}-{attempt}".encode()):
                attempt += 1
        self.hang_up()

    async def _enqueue(self, payload: bytes) -> bool:
        max_attempts = POISON_ATTEMPTS_MAX if is_poison(payload) else ATTEMPTS_MAX
        body = message_body(payload, queue=QUEUE, max_attempts=max_attempts)
        answer = await self.call(lambda wire: wire.call("POST", "/v1/queue/enqueue", MULTIPART, body))
        if answer is None or answer.status != 200:
            if answer is None:
                self._ledger.unknown_payloads.add(payload)
            return False
        self._ledger.enqueued[answer.members()["message_id"]] = payload
        return True


class Consumer(Actor):
    """Takes and resolves until it is told to stop; now and then it dies with a delivery in its hands."""

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            delivery = await self._take()
            if delivery is None:
                continue
            taken_at_s = time.monotonic()
            end = await self._end(delivery)
            self._record(delivery, taken_at_s, end)
        self.hang_up()

    async def _end(self, delivery: Delivered) -> End:
        if self._rng.random() < CONSUMER_DEATHS:
            self.hang_up()
            return End.HUNG_UP
        verb, end = ("nack", End.NACKED) if is_poison(delivery.payload) else ("ack", End.ACKED)
        answer = await self.call(lambda wire: wire.post(f"/v1/queue/{verb}", delivery.resolve()))
        if answer is None:
            return End.UNKNOWN
        return end if answer.status == 200 else End.REFUSED

    async def _take(self) -> Delivered | None:
        asked = {
            "queue": QUEUE,
            "owner": "consumer",
            "wait_seconds": 1,
            "visibility_timeout_seconds": VISIBILITY_S,
        }
        answer = await self.call(lambda wire: wire.post("/v1/queue/dequeue", asked))
        if answer is None or answer.status != 200:
            return None
        [delivery] = deliveries(answer.headers["content-type"], answer.body)
        return delivery

    def _record(self, delivery: Delivered, taken_at_s: float, end: End) -> None:
        message_id: str = delivery.message["message_id"]
        token: int = delivery.message["fencing_token"]
        self._ledger.payloads[message_id] = delivery.payload
        self._ledger.delivered[message_id].append(Taken(token, taken_at_s, time.monotonic(), end))
        if end is End.ACKED:
            assert message_id not in self._ledger.acked, "acked twice"
            self._ledger.acked[message_id] = token
        elif end is End.UNKNOWN:
            self._ledger.perhaps_acked.add(message_id)


def is_poison(payload: bytes) -> bool:
    """Decided by its number, so that every consumer decides the same."""
    return int(payload.split(b"-")[1]) % POISON_EACH == 0


async def dead_ids(port: int) -> set[str]:
    """All dead letters; from the start again whenever the plane dies meanwhile."""
    while True:
        try:
            wire = await WireClient.connect(port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        try:
            return await _dead_ids(wire)
        except (OSError, EOFError):
            continue
        finally:
            wire.close()


async def _dead_ids(wire: WireClient) -> set[str]:
    found: set[str] = set()
    after = ""
    while True:
        answer = await wire.post("/v1/queue/dlq/list", {"queue": QUEUE, "limit": 100, "after": after})
        assert answer.status == 200, answer
        page: list[dict[str, Any]] = json.loads(answer.body)["messages"]
        found.update(letter["message_id"] for letter in page)
        if len(page) < 100:
            return found
        after = page[-1]["message_id"]
