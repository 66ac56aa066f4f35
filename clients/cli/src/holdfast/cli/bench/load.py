"""The load of `holdfast bench`: `python -m holdfast.cli.bench.load JOB` drives a plane and tells what it measured.

One connection does one operation after the other, so there are as many under way as there are connections. It prints
`begin` when it is warm, and one line of JSON at the end.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, cast

import uvloop

from holdfast.cli.bench.queue.operations import batch_life, message_life
from holdfast.common.ids import new_xid

WARM_UP_S: Final = 0.5
LAST_ANSWERS_S: Final = 30.0
DOCUMENT: Final = json.dumps({"payload": "x" * 1010}, separators=(",", ":")).encode()
ATTACHMENT: Final = bytes(range(256)) * 256
SMALL_ATTACHMENT: Final = bytes(range(256)) * 4
ECHO_PATH: Final = "/echo"
PAGE_KEYS: Final = 50
PAGE_GROUPS: Final = 4
_groups: Final = itertools.count()

Operation = Generator[bytes, bytes, None]
"""Yields requests, is sent the bodies of their answers, and ends when the operation is complete."""


@dataclass(frozen=True, slots=True)
class LoadJob:
    """What to do, against which address."""

    host: str
    port: int
    kind: str
    concurrency: int
    seconds: float
    keys: int
    is_keep_alive: bool = True
    """Else each operation has a connection of its own."""
    is_fresh_keys: bool = False
    """Each operation has a key that none had before, instead of one of `keys`."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was measured after the warm-up."""

    operations: int
    requests: int
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    commit_p50_ms: float = 0.0


def key_name(number: int) -> str:
    return f"bench-{number:07d}"


def lock_cycle(key: str) -> Operation:
    """Acquire, update of one kilobyte, release."""
    lease = yield from _acquire(key)
    yield _request(f"/v1/update?key={key}", DOCUMENT, lease.claim)
    yield lease.release()


def transaction(key: str) -> Operation:
    """Two keys in one transaction: two acquires, an update of one kilobyte each, and the release that commits both."""
    txn_id = new_xid()
    first = yield from _acquire(f"{key}-a", txn_id)
    second = yield from _acquire(f"{key}-b", txn_id)
    for lease in (first, second):
        yield _request(f"/v1/update?key={lease.key}", DOCUMENT, lease.claim)
    yield first.release()


def attachment_put(key: str) -> Operation:
    """Acquire, put of an attachment of one kilobyte, release."""
    lease = yield from _acquire(key)
    yield _request(f"/v1/attachments?key={key}&name=bench", SMALL_ATTACHMENT, lease.claim)
    yield lease.release()


def attachment_cycle(key: str) -> Operation:
    """Put of 64 KiB, published; a public get; delete, published: seven requests."""
    query = f"key={key}&name=bench"
    lease = yield from _acquire(key)
    yield _request(f"/v1/attachments?{query}", ATTACHMENT, lease.claim)
    yield lease.release()
    content = yield _request(f"/v1/attachment?{query}&public=1", b"", method="GET")
    assert content == ATTACHMENT, "the attachment is not what was put"
    lease = yield from _acquire(key)
    yield _request(f"/v1/attachment?{query}", b"", lease.claim, method="DELETE")
    yield lease.release()


@dataclass(frozen=True, slots=True)
class _Lease:
    key: str
    lease_id: str
    txn_id: str
    token: int

    @property
    def claim(self) -> str:
        return f"X-Lease-ID: {self.lease_id}\r\nX-Txn-ID: {self.txn_id}\r\nX-Fencing-Token: {self.token}\r\n"

    def release(self) -> bytes:
        ended = f'{{"key":"{self.key}","lease_id":"{self.lease_id}","txn_id":"{self.txn_id}"}}'
        return _request("/v1/release", ended.encode(), f"X-Fencing-Token: {self.token}\r\n")


def _acquire(key: str, txn_id: str = "") -> Generator[bytes, bytes, _Lease]:
    told = json.loads((yield _request("/v1/acquire", _asked(key, txn_id))))
    return _Lease(key, told["lease_id"], told["txn_id"], told["fencing_token"])


def _asked(key: str, txn_id: str = "") -> bytes:
    joined = f',"txn_id":"{txn_id}"' if txn_id else ""
    return f'{{"key":"{key}","owner":"bench","ttl_seconds":60,"block_seconds":-1{joined}}}'.encode()


def public_read(key: str) -> Operation:
    yield _request(f"/v1/get?key={key}&public=1", b"")


def query_page(key: str) -> Operation:
    """One page of keys, of those documents of `holdfast bench query` that share a member; another group each time."""
    group = next(_groups) % PAGE_GROUPS
    selector = f'{{"eq":{{"field":"/shared_by_{PAGE_KEYS}","value":"group-{group}"}}}}'
    asked = f'{{"selector":{selector},"limit":{PAGE_KEYS}}}'
    found = json.loads((yield _request("/v1/query", asked.encode())))["keys"]
    assert len(found) == PAGE_KEYS, f"a page has {len(found)} keys instead of {PAGE_KEYS}"


def echo(key: str) -> Operation:
    """The same small body as an acquire, which the echo gives back."""
    yield _request(ECHO_PATH, _asked(key))


KINDS: Final = {
    "lock": lock_cycle,
    "transaction": transaction,
    "read": public_read,
    "attachment": attachment_put,
    "attachments": attachment_cycle,
    "query": query_page,
    "queue": message_life,
    "queue-batch": batch_life,
    "echo": echo,
}


def _request(target: str, body: bytes, headers: str = "", *, method: str = "POST") -> bytes:
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: plane\r\nContent-Type: application/json\r\n{headers}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class LoadConnection(asyncio.Protocol):
    """Does operations until its load is over."""

    _transport: asyncio.Transport

    def __init__(self, load: "Load", keys: Iterator[str]) -> None:
        self._load = load
        self._keys = keys
        self._operation: Operation | None = None
        self._began_s = 0.0
        self._input = b""
        self._has_ended = False  # Another connection goes on.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class.
        self._begin()

    def _begin(self) -> None:
        self._operation = KINDS[self._load.job.kind](next(self._keys))
        self._began_s = time.perf_counter()
        self._transport.write(next(self._operation))

    def data_received(self, data: bytes) -> None:
        self._input = self._input + data if self._input else data
        head_end = self._input.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._input[:head_end].lower()
        if not head.startswith(b"http/1.1 20"):
            self._load.fail(f"unexpected answer: {self._input[:300]!r}")
            return
        at = head.find(b"content-length:")
        length = 0 if at < 0 else int(head[at + 15 :].partition(b"\r\n")[0])
        if len(self._input) < head_end + 4 + length:
            return
        body, self._input = self._input[head_end + 4 :], b""
        self._answered(body)

    def _answered(self, body: bytes) -> None:
        assert self._operation is not None
        self._load.requests += 1
        try:
            request = self._operation.send(body)
        except StopIteration:
            self._load.latencies_s.append(time.perf_counter() - self._began_s)
            if self._load.is_over:
                self._transport.close()
            elif self._load.job.is_keep_alive:
                self._begin()
            else:
                self._has_ended = True
                self._transport.close()
                self._load.connect(self._keys)
        else:
            self._transport.write(request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._has_ended:
            self._load.closed(exc)


class Load:
    """All connections of one run."""

    def __init__(self, job: LoadJob) -> None:
        self.job = job
        self.requests = 0
        self.latencies_s: list[float] = []
        self.is_over = False
        self._open = job.concurrency
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._connecting: set[asyncio.Task[None]] = set()

    async def run(self) -> LoadResult:
        for number in range(self.job.concurrency):
            await self._connect(self._keys(number))
        await asyncio.sleep(WARM_UP_S)
        say("begin")
        self.requests, self.latencies_s = 0, []
        began_s = time.perf_counter()
        await asyncio.wait({self._ended}, timeout=self.job.seconds)
        result = self._result(time.perf_counter() - began_s)
        self.is_over = True
        async with asyncio.timeout(LAST_ANSWERS_S):
            await self._ended
        return result

    def connect(self, keys: Iterator[str]) -> None:
        task = self._loop.create_task(self._connect(keys))
        self._connecting.add(task)
        task.add_done_callback(self._connected)

    async def _connect(self, keys: Iterator[str]) -> None:
        connection = LoadConnection(self, keys)
        await self._loop.create_connection(partial(_same, connection), self.job.host, self.job.port)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"no connection: {error}")

    def fail(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_exception(RuntimeError(reason))

    def closed(self, error: Exception | None) -> None:
        self._open -= 1
        if not self.is_over:
            self.fail(f"the server closed a connection: {error}")
        elif not self._open and not self._ended.done():
            self._ended.set_result(None)

    def _keys(self, first: int) -> Iterator[str]:
        """Its own share of the keys, so that no connection waits for another one's lease."""
        if self.job.is_fresh_keys:
            run = time.time_ns() // 1_000_000
            yield from (f"bench-{run:x}-{first}-{number}" for number in itertools.count(1))
        step = self.job.concurrency
        numbers = list(range(first, max(self.job.keys, first + 1), step))
        stride = (
            7919 if len(numbers) % 7919 else 1
        )  # Not in order, so that dependencies in the store are not warm.
        at = 0
        while True:
            yield key_name(numbers[at])
            at = (at + stride) % len(numbers)

    def _result(self, seconds: float) -> LoadResult:
        ordered_ms = [latency_s * 1000 for latency_s in sorted(self.latencies_s)] or [0.0]
        return LoadResult(
            operations=len(self.latencies_s),
            requests=self.requests,
            seconds=seconds,
            p50_ms=percentile(ordered_ms, 0.50),
            p95_ms=percentile(ordered_ms, 0.95),
            p99_ms=percentile(ordered_ms, 0.99),
        )


def _same(connection: LoadConnection) -> LoadConnection:
    return connection


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _main(job: LoadJob) -> None:
    say(json.dumps(asdict(await Load(job).run())))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(LoadJob(**json.loads(sys.argv[1]))))
