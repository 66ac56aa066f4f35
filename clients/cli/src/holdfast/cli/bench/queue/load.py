"""The streams of `holdfast bench queue`: `python -m holdfast.cli.bench.queue.load JOB`, as `bench.load` does for requests.

`queue-subscribe`: each client has a queue, a producer, a stream with a prefetch and a connection for its acks; latency is
from the enqueue to the arrival. `queue-wake`: one consumer waits for each single message; latency is from sending the
enqueue to the arrival, `commit_p50_ms` from there to its answer.
"""

import asyncio
import json
import re
import sys
import time
from collections import deque
from dataclasses import asdict
from typing import Any, Final

import uvloop

from holdfast.cli.bench.load import WARM_UP_S, LoadJob, LoadResult, key_name, percentile, say
from holdfast.cli.bench.queue.operations import (
    PAYLOAD,
    ack_request,
    dequeue_request,
    enqueue_request,
    messages_of,
)

PREFETCH: Final = 32
AHEAD_MAX: Final = 64
"""Messages that a producer may be ahead of its acks."""
PARKED_AFTER_S: Final = 0.003
"""Until a dequeue that was sent surely waits at the server."""
_STAMP_BYTES: Final = 20
_find_messages = re.compile(
    rb'(\{"message":.*?\}\}\n)\r\n--[0-9a-f]{60}\r\n[^{]*?\r\n\r\n(\d{20})x', re.DOTALL
).finditer


class QueueLoadConnection:
    """One request at a time on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, job: LoadJob) -> "QueueLoadConnection":
        return cls(*await asyncio.open_connection(job.host, job.port))

    def send(self, request: bytes) -> None:
        self._writer.write(request)

    async def answer(self) -> bytes:
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"unexpected answer: {head!r}")
        at = head.find(b"content-length:")
        return await self._reader.readexactly(int(head[at + 15 :].partition(b"\r\n")[0]))

    async def call(self, request: bytes) -> bytes:
        self.send(request)
        return await self.answer()

    async def some(self) -> bytes:
        data = await self._reader.read(1 << 18)
        if not data:
            raise RuntimeError("the server ended the stream")
        return data

    def close(self) -> None:
        self._writer.close()


class Counts:
    """What was done since the warm-up."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the warm-up; the tasks that count here go on."""
        self.requests = 0
        self.operations = 0
        self.latencies_s: list[float] = []
        self.commits_s: list[float] = []

    def result(self, seconds: float) -> LoadResult:
        ordered_ms = [latency_s * 1000 for latency_s in sorted(self.latencies_s)] or [0.0]
        return LoadResult(
            operations=self.operations,
            requests=self.requests,
            seconds=seconds,
            p50_ms=percentile(ordered_ms, 0.50),
            p95_ms=percentile(ordered_ms, 0.95),
            p99_ms=percentile(ordered_ms, 0.99),
            commit_p50_ms=percentile(sorted(self.commits_s) or [0.0], 0.50) * 1000,
        )


class Subscriber:
    """A queue with all its connections."""

    def __init__(self, job: LoadJob, number: int, counts: Counts) -> None:
        self._job = job
        self._queue = key_name(number)
        self._counts = counts
        self._to_ack: deque[dict[str, Any]] = deque()
        self._has_acks = asyncio.Event()
        self._room = asyncio.Semaphore(AHEAD_MAX)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce())
            tasks.create_task(self._consume())
            tasks.create_task(self._ack())

    async def _produce(self) -> None:
        connection = await QueueLoadConnection.open(self._job)
        while True:
            await self._room.acquire()
            stamp = b"%020d" % time.perf_counter_ns()
            await connection.call(enqueue_request(self._queue, [stamp + PAYLOAD[_STAMP_BYTES:]]))
            self._counts.requests += 1

    async def _consume(self) -> None:
        connection = await QueueLoadConnection.open(self._job)
        connection.send(dequeue_request(self._queue, "subscribe", page_size=PREFETCH, wait_seconds=0))
        unread = b""
        while True:
            unread += await connection.some()
            end = 0
            for found in _find_messages(unread):
                end = found.end()
                self._counts.latencies_s.append((time.perf_counter_ns() - int(found[2])) / 1e9)
                self._to_ack.append(json.loads(found[1])["message"])
            unread = unread[end:]
            if self._to_ack:
                self._has_acks.set()

    async def _ack(self) -> None:
        connection = await QueueLoadConnection.open(self._job)
        while True:
            await self._has_acks.wait()
            self._has_acks.clear()
            while self._to_ack:
                await connection.call(ack_request(self._to_ack.popleft()))
                self._counts.requests += 1
                self._counts.operations += 1
                self._room.release()


async def subscribe_for_ever(job: LoadJob, counts: Counts) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(job.concurrency):
            tasks.create_task(Subscriber(job, number, counts).run())


async def wake_for_ever(job: LoadJob, counts: Counts) -> None:
    queue = key_name(0)
    consumer, producer = await QueueLoadConnection.open(job), await QueueLoadConnection.open(job)
    while True:
        consumer.send(dequeue_request(queue))
        await asyncio.sleep(PARKED_AFTER_S)
        delivery = asyncio.create_task(_timed(consumer.answer()))
        began_s = time.perf_counter()
        _, answered_s = await _timed(producer.call(enqueue_request(queue, [PAYLOAD])))
        body, delivered_s = await delivery
        (message,) = messages_of(body)
        await consumer.call(ack_request(message))
        counts.latencies_s.append(delivered_s - began_s)
        counts.commits_s.append(answered_s - began_s)
        counts.operations += 1
        counts.requests += 3


async def _timed(answer: Any) -> tuple[bytes, float]:
    return await answer, time.perf_counter()


KINDS: Final = {"queue-subscribe": subscribe_for_ever, "queue-wake": wake_for_ever}


async def measure(job: LoadJob) -> LoadResult:
    counts = Counts()
    load = asyncio.create_task(KINDS[job.kind](job, counts))
    await asyncio.wait({load}, timeout=WARM_UP_S)
    say("begin")
    counts.begin_anew()
    began_s = time.perf_counter()
    await asyncio.wait({load}, timeout=job.seconds)
    if load.done():
        await load
    result = counts.result(time.perf_counter() - began_s)
    load.cancel()
    await asyncio.wait({load})
    return result


async def _main(job: LoadJob) -> None:
    say(json.dumps(asdict(await measure(job))))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(LoadJob(**json.loads(sys.argv[1]))))
