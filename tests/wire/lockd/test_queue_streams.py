"""Subscriptions and watches on the wire: what goes out at once, what holds back, how they end."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from holdfast.common.express.limits import Limits
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.queue.protocol.lockd import inspection as inspection_routes
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import (
    Delivered,
    RawAnswer,
    deliveries,
    dequeue,
    enqueue,
    raw,
    take,
)
from tests.wire.lockd.test_leases import refusal

LARGE = b"0123456789abcdef" * 40_000


def request(path: str, **body: object) -> bytes:
    asked = json.dumps({"queue": "orders", "owner": "w", "wait_seconds": 0, **body}).encode()
    return f"POST {path} HTTP/1.1\r\nHost: p\r\nContent-Length: {len(asked)}\r\n\r\n".encode() + asked


class Stream:
    """A subscription as its client reads it: it knows the end of a message by the delimiter behind its payload."""

    def __init__(self, answer: RawAnswer) -> None:
        self._answer = answer
        self._boundary = b""
        self._input = b""
        self.head = b""

    async def open(self) -> None:
        self.head = await self._answer.head()
        assert self.head.startswith(b"HTTP/1.1 200 OK\r\n"), self.head
        self._boundary = self.head.partition(b"boundary=")[2].partition(b"\r\n")[0]

    async def next(self) -> Delivered:
        delimiter = b"--" + self._boundary
        while self._input.count(delimiter) < 3:
            chunk = await self._answer.chunk()
            assert chunk, "the stream ended"
            self._input += chunk
        first, meta, payload, rest = self._input.split(delimiter, 3)
        assert first == b""
        whole = delimiter + meta + delimiter + payload + delimiter + b"--\r\n"
        self._input = delimiter + rest
        (delivered,) = deliveries(f"multipart/related; boundary={self._boundary.decode()}", whole)
        return delivered

    async def end(self) -> None:
        """The closing delimiter, and the end of the answer."""
        while chunk := await self._answer.chunk():
            self._input += chunk
        assert self._input == b"--" + self._boundary + b"--\r\n"


@asynccontextmanager
async def subscribed(wire: Wire, path: str = "/v1/queue/subscribe", **body: object) -> AsyncIterator[Stream]:
    async with raw(wire, request(path, **body)) as answer:
        stream = Stream(answer)
        yield stream


async def test_messages_come_one_after_the_other_as_they_are_enqueued(wire: Wire) -> None:
    async with subscribed(wire) as stream:
        first = await enqueue(wire, "orders", b"one", {"X-Correlation-Id": "req-1"})
        await stream.open()
        one = await stream.next()
        await wire.post("/v1/queue/ack", one.resolve())
        second = await enqueue(wire, "orders", b"two\r\n--")
        two = await stream.next()

    assert b"x-correlation-id: req-1\r\n" in stream.head
    assert b"transfer-encoding: chunked\r\n" in stream.head
    assert b"content-length" not in stream.head
    assert (one.message["message_id"], one.payload) == (first["message_id"], b"one")
    assert (two.message["message_id"], two.payload) == (second["message_id"], b"two\r\n--")


async def test_without_waiting_a_stream_ends_when_nothing_is_ready(wire: Wire) -> None:
    sent = [(await enqueue(wire, "orders", b"%d" % number))["message_id"] for number in range(5)]

    async with subscribed(wire, wait_seconds=-1, page_size=8) as stream:
        await stream.open()
        received = [(await stream.next()).message["message_id"] for _ in sent]
        await stream.end()

    assert received == sent


async def test_a_stream_reads_ahead_no_further_than_its_page(wire: Wire) -> None:
    for number in range(5):
        await enqueue(wire, "orders", b"%d" % number)

    async with subscribed(wire, page_size=2) as stream:
        await stream.open()
        one, two = await stream.next(), await stream.next()
        await until_in_flight(wire, 2)
        await wire.post("/v1/queue/ack", one.resolve())
        three = await stream.next()
        await wire.post("/v1/queue/nack", two.resolve(delay_seconds=60))
        four = await stream.next()

    assert [delivered.payload for delivered in (one, two, three, four)] == [b"0", b"1", b"2", b"3"]


async def test_without_waiting_a_stream_ends_when_its_page_is_unresolved(wire: Wire) -> None:
    for number in range(3):
        await enqueue(wire, "orders", b"%d" % number)

    async with subscribed(wire, wait_seconds=-1, page_size=2) as stream:
        await stream.open()
        received = [(await stream.next()).payload for _ in range(2)]
        await stream.end()

    assert received == [b"0", b"1"]
    assert (await dequeue(wire, "orders")).payload == b"2"


async def test_a_stream_stays_open_whatever_its_first_wait_was(wire: Wire) -> None:
    await enqueue(wire, "orders", b"one")
    await enqueue(wire, "orders", b"two", delay_seconds=2)

    async with subscribed(wire, wait_seconds=1, page_size=4) as stream:
        await stream.open()
        one, two = await stream.next(), await stream.next()

    assert (one.payload, two.payload) == (b"one", b"two")


async def test_large_and_small_payloads_follow_each_other(wire: Wire) -> None:
    for payload in (b"small", LARGE, b"", LARGE + b"\r\n--", b"last"):
        await enqueue(wire, "orders", payload)

    async with subscribed(wire, wait_seconds=-1, page_size=16) as stream:
        await stream.open()
        received = [(await stream.next()).payload for _ in range(5)]
        await stream.end()

    assert received == [b"small", LARGE, b"", LARGE + b"\r\n--", b"last"]


async def test_a_stateful_stream_leases_the_state_of_each_message(wire: Wire) -> None:
    await enqueue(wire, "orders", b"one")
    async with subscribed(wire, "/v1/queue/subscribeWithState", page_size=2) as stream:
        await stream.open()
        one = await stream.next()

    acked = await wire.post("/v1/queue/ack", one.resolve_state())

    assert one.message["state_lease_id"]
    assert acked.status_code == 200


async def test_what_was_sent_stays_with_a_consumer_that_hung_up(wire: Wire) -> None:
    await enqueue(wire, "orders")
    async with subscribed(wire) as stream:
        await stream.open()
        taken = await stream.next()

    assert refusal(await take(wire, "orders")) == (409, "waiting")
    assert (await wire.post("/v1/queue/ack", taken.resolve())).status_code == 200


@pytest.mark.parametrize("path", ["/v1/queue/dequeue", "/v1/queue/subscribe"])
async def test_a_consumer_that_hangs_up_while_it_waits_takes_nothing_with_it(wire: Wire, path: str) -> None:
    async with raw(wire, request(path)):
        await until_consumers(wire, 1)
    await until_consumers(wire, 0)

    await enqueue(wire, "orders", b"hello")

    assert (await dequeue(wire, "orders")).message["attempts"] == 1


@pytest.mark.parametrize("path", ["/v1/queue/dequeue", "/v1/queue/subscribe", "/v1/queue/dequeueBatch"])
async def test_a_message_that_was_not_sent_whole_is_given_back_at_once(wire: Wire, path: str) -> None:
    await enqueue(wire, "orders", LARGE * 40)
    async with raw(wire, request(path)) as answer:
        await answer.head()

    again = await dequeue(wire, "orders", wait_seconds=5)

    assert again.payload == LARGE * 40
    assert "failure_attempts" not in again.message


async def until_consumers(wire: Wire, count: int, queue: str = "orders") -> None:
    """Each look is a round trip to the server, which lets it go on."""
    waiting = -1
    while waiting != count:
        told = [await stats(wire, queue) for _ in range(wire.nodes)]
        waiting = sum(one["waiting_consumers"] for one in told)


async def until_in_flight(wire: Wire, count: int, queue: str = "orders") -> None:
    """Another node hears of a delivery a moment later; it must never be told of more."""
    in_flight = 0
    while in_flight < count:
        in_flight = (await stats(wire, queue))["in_flight"]
    assert in_flight == count


async def stats(wire: Wire, queue: str) -> dict[str, Any]:
    told: dict[str, Any] = (await wire.post("/v1/queue/stats", {"queue": queue})).json()
    return told


# -- the end of the server


@pytest.fixture(params=["lane", "asgi"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[PlaneServer, Wire]]:
    app = create_app(GatewaySettings.isolated(store="mem://"))
    limits = Limits(half_close_grace_s=3600)
    options = ServeOptions(is_express=request.param == "lane", limits=limits, drain_grace_s=5)
    async with running(app, Listener("127.0.0.1:0"), options=options) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", timeout=20) as client:
            yield server, Wire(client)


async def test_a_server_that_stops_ends_its_streams_properly(server: tuple[PlaneServer, Wire]) -> None:
    plane, wire = server
    await enqueue(wire, "orders", b"one")
    async with subscribed(wire) as stream, raw(wire, request("/v1/queue/dequeue", queue="other")) as waiting:
        await stream.open()
        await stream.next()
        await until_consumers(wire, 1, "other")

        plane.request_stop()

        await stream.end()
        head = await waiting.head()
        told = json.loads(await waiting.body(head))

    assert head.startswith(b"HTTP/1.1 503 ")
    assert told["error"] == "shutdown_draining"
    assert told["retry_after_seconds"] >= 1


async def test_a_consumer_that_hangs_up_behind_a_pipelined_request_waits_no_longer(
    server: tuple[PlaneServer, Wire],
) -> None:
    _, wire = server
    asked = request("/v1/queue/dequeue", queue="orders") + request("/v1/queue/stats", queue="orders")
    async with raw(wire, asked):
        await until_consumers(wire, 1)

    async with asyncio.timeout(20):
        await until_consumers(wire, 0)


async def test_a_watch_ends_with_its_client_also_behind_a_pipelined_request(
    server: tuple[PlaneServer, Wire],
) -> None:
    _, wire = server
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    writer.write(request("/v1/queue/watch", queue="orders") + request("/v1/queue/stats", queue="orders"))
    await reader.readuntil(b"event: queue_watch")

    writer.write_eof()

    async with asyncio.timeout(20):
        with suppress(ConnectionResetError):
            await reader.read()
    writer.close()


# -- watching


async def events(wire: Wire, body: dict[str, object]) -> AsyncGenerator[dict[str, Any], None]:
    async with wire.stream("/v1/queue/watch", body) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        lines: list[str] = []
        async for line in answer.aiter_lines():
            if line:
                lines.append(line)
                continue
            number, kind, data = lines
            lines = []
            assert kind == "event: queue_watch"
            yield {"id": number, **json.loads(data.removeprefix("data: "))}


async def test_a_watch_tells_the_head_now_and_whenever_it_changes(wire: Wire) -> None:
    seen = events(wire, {"queue": "Orders"})

    empty = await anext(seen)
    sent = await enqueue(wire, "orders")
    there = await anext(seen)
    taken = await dequeue(wire, "orders")
    gone = await anext(seen)
    await wire.post("/v1/queue/nack", taken.resolve())
    back = await anext(seen)
    await seen.aclose()

    assert [event["id"] for event in (empty, there, gone, back)] == ["id: 1", "id: 2", "id: 3", "id: 4"]
    assert [event["available"] for event in (empty, there, gone, back)] == [False, True, False, True]
    assert there["head_message_id"] == back["head_message_id"] == sent["message_id"]
    assert "head_message_id" not in empty
    assert set(empty) == {"id", "namespace", "queue", "available", "changed_at_unix", "correlation_id"}
    assert (empty["namespace"], empty["queue"]) == ("default", "orders")


async def test_a_watch_that_has_nothing_to_tell_says_so(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection_routes, "KEEPALIVE_S", 0.05)

    async with wire.stream("/v1/queue/watch", {"queue": "orders"}) as answer:
        lines = answer.aiter_lines()
        async for line in lines:  # A slow store has let one pass before the first event.
            if line.startswith("data:"):
                break
        said = [line async for line in _some(lines, 5)]

    assert said == ["", ": keepalive", "", ": keepalive", ""]


async def _some(lines: AsyncIterator[str], count: int) -> AsyncIterator[str]:
    for _ in range(count):
        yield await anext(lines)


async def test_a_stream_whose_consumer_hung_up_between_two_messages_takes_no_further_one(
    server: tuple[PlaneServer, Wire],
) -> None:
    _, wire = server
    await enqueue(wire, "orders", b"one")
    async with subscribed(wire) as stream:
        await stream.open()
        await wire.post("/v1/queue/ack", (await stream.next()).resolve())
    async with asyncio.timeout(20):
        await until_consumers(wire, 0)

    await enqueue(wire, "orders", b"two")

    assert (await dequeue(wire, "orders")).payload == b"two"


async def test_a_watch_ends_with_its_server(server: tuple[PlaneServer, Wire]) -> None:
    plane, wire = server

    seen = events(wire, {"queue": "orders"})
    await anext(seen)
    plane.request_stop()

    assert [event async for event in seen] == []
