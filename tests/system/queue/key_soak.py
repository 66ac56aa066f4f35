"""Producers and consumers of a queue over keys, by the recipes of its users, while the processes they call are killed."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from tests.system.leases.wire import WireClient

QUEUE: Final = "soak"
LEASE_S: Final = 6
ANSWER_S_MAX: Final = 10.0
"""After which a call counts as one that is not answered: a process may be killed between two bytes."""

BROKEN = (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError, json.JSONDecodeError)


class Delivery(NamedTuple):
    key: str
    idx: int
    payload: str
    revision: int
    """That put its key."""


class Ledger:
    """What was told to whom."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.unknown: set[str] = set()
        """Payloads whose put was not answered."""
        self.payloads: dict[int, str] = {}
        self.delivered: dict[int, list[int]] = defaultdict(list)
        """By idx, the revisions of the deliveries that a consumer saw."""
        self.acked: dict[int, int] = {}
        """By idx, the revision at which the ack was answered."""
        self.perhaps_acked: set[int] = set()

    def check(self) -> None:
        """Nothing is lost, nothing comes again after its ack, nothing is there twice, no idx is left out."""
        payloads = list(self.payloads.values())
        assert len(set(payloads)) == len(payloads), "a put has become two messages"
        assert self.accepted <= set(payloads), "an accepted message is lost"
        assert set(payloads) <= self.accepted | self.unknown
        assert sorted(self.payloads) == list(range(1, len(payloads) + 1)), "an idx is left out"
        assert self.payloads.keys() <= self.acked.keys() | self.perhaps_acked
        for idx, revision in self.acked.items():
            assert max(self.delivered[idx]) <= revision, "it came again after its ack"


class Client:
    """One that calls any of several ports, and another one when it breaks."""

    def __init__(self, ports: list[int], first: int = 0) -> None:
        self._ports = ports
        self._next = first
        self._wire: WireClient | None = None

    @property
    def port(self) -> int:
        return self._ports[self._next % len(self._ports)]

    async def call(self, path: str, **members: object) -> Any:
        """What was answered; None: how it ended is unknown, or it was refused for now."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                if self._wire is None:
                    self._wire = await WireClient.connect(self.port)
                answer = await self._wire.post(f"/v3/{path}", members)
        except BROKEN:
            await self.hang_up()
            return None
        if answer.status != 200:
            assert answer.status in (404, 503), answer
            return None
        return answer.members()

    async def hang_up(self) -> None:
        """And go on with the next one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._next += 1
        await asyncio.sleep(0.05)


class Producer(Client):
    async def run(self, ledger: Ledger, name: str, count: int) -> None:
        for number in range(count):
            await self.send(ledger, f"{name}-{number}")
        await self.hang_up()

    async def send(self, ledger: Ledger, name: str) -> None:
        """Until it is told that it is accepted; each attempt is a message of its own."""
        attempt = 0
        while True:
            payload = f"{name}-{attempt}"
            key = f"/queue/{QUEUE}/producer/me/{payload}"
            if await self.call("kv/put", key=b64(key), value=b64(payload)) is not None:
                ledger.accepted.add(payload)
                return
            ledger.unknown.add(payload)
            attempt += 1


class Consumer(Client):
    """Grant a lease, register, look at what is there, watch from there on; all of it again when anything breaks."""

    def __init__(self, ports: list[int], first: int, name: str, ledger: Ledger) -> None:
        super().__init__(ports, first)
        self._ledger = ledger
        self._prefix = f"/q/{QUEUE}/c/{name}/"

    async def run(self) -> None:
        while True:
            with suppress(*BROKEN, SessionEnded):
                await self._session()
            await self.hang_up()

    async def _session(self) -> None:
        granted = await self._asked("lease/grant", TTL=LEASE_S)
        await self._asked("kv/put", key=b64(self._prefix), lease=granted["ID"])
        keeping = asyncio.create_task(self._keep(Client([self.port]), granted["ID"]))
        try:
            found = await self._asked(
                "kv/range", key=b64(self._prefix), range_end=b64(self._prefix[:-1] + "0")
            )
            revision = int(found["header"]["revision"])
            async with self._watching(revision + 1) as events:
                for kv in found.get("kvs", []):
                    await self._handle(kv)
                async for event in events:
                    if keeping.done():
                        raise SessionEnded
                    if "type" not in event:
                        await self._handle(event["kv"])
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _asked(self, path: str, **members: object) -> Any:
        answer = await self.call(path, **members)
        if answer is None:
            raise SessionEnded
        return answer

    async def _keep(self, client: Client, lease: str) -> None:
        """Ends when the lease does."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            answer = await client.call("lease/keepalive", ID=lease)
            if answer is None or "TTL" not in answer["result"]:
                return

    async def _handle(self, kv: Any) -> None:
        key = text(kv["key"])
        if key == self._prefix:
            return
        idx = int(key.split("/")[5])
        payload = text(kv["value"])
        ledger = self._ledger
        assert ledger.payloads.setdefault(idx, payload) == payload
        ledger.delivered[idx].append(int(kv["mod_revision"]))
        answer = await self.call("kv/deleterange", key=b64(key))
        if answer is None:
            ledger.perhaps_acked.add(idx)
            raise SessionEnded
        if "deleted" in answer:
            ledger.acked[idx] = int(answer["header"]["revision"])

    @asynccontextmanager
    async def _watching(self, revision: int) -> AsyncIterator[AsyncIterator[Any]]:
        body = json.dumps(
            {
                "create_request": {
                    "key": b64(self._prefix),
                    "range_end": b64(self._prefix[:-1] + "0"),
                    "start_revision": revision,
                }
            }
        ).encode()
        async with asyncio.timeout(ANSWER_S_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(
                b"POST /v3/watch HTTP/1.1\r\nHost: plane\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            yield _events(reader)
        finally:
            writer.close()


class SessionEnded(Exception):
    """The consumer has to begin anew."""


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[Any]:
    """Of the lines of an answer those that are messages."""
    while line := await reader.readline():
        if line.startswith(b"{"):
            result = json.loads(line)["result"]
            if result.get("canceled"):
                return
            for event in result.get("events", []):
                yield event


def b64(value: str) -> str:
    return b64encode(value.encode()).decode()


def text(value: str) -> str:
    return b64decode(value).decode()
