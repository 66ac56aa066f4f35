"""Many watches at once, slow ones, and those whose clients are gone."""

import asyncio
import json
import re
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.infra.gateway import url_of
from tests.wire.etcd.conftest import ANSWER_S_MAX, EtcdWire, Stream, etcd_server, one_plane, two_planes

WATCHERS = 1000
PREFIX = {"key": "dy8=", "range_end": "dzA="}
KEY = "dy8x"
LARGE_BYTES = 384 << 10
POLL_S = 0.01


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    """Both ends of all connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def wire() -> AsyncIterator[EtcdWire]:
    async with one_plane(qrf_disabled=True) as plane:
        yield plane


async def watchers(wire: EtcdWire) -> list[int]:
    """Watches that are open, at each node."""
    counts: list[int] = []
    for _ in wire.ports:
        page = (await wire.call("GET", "/metrics")).body.decode()
        found = re.search(r"^holdfast_kv_watchers(?:{[^}]*})? (\S+)$", page, re.MULTILINE)
        assert found is not None, "the metric is there"
        counts.append(int(float(found[1])))
    return counts


async def until_watched_by(wire: EtcdWire, count: int) -> None:
    async with asyncio.timeout(ANSWER_S_MAX):
        while sum(await watchers(wire)) != count:  # noqa: ASYNC110  # No client is told that another one is gone.
            await asyncio.sleep(POLL_S)


async def change(wire: EtcdWire, number: int) -> None:
    """One revision each: puts, one with two keys, and a deletion."""
    put = {"request_put": {"key": KEY, "value": "MQ=="}}
    if number % 4 == 2:
        await wire.post("/v3/kv/txn", success=[put, {"request_put": {"key": "dy8y"}}])
    elif number % 4 == 3:
        await wire.post("/v3/kv/deleterange", **PREFIX)
    else:
        await wire.post("/v3/kv/put", **put["request_put"])


async def events_until(stream: Stream, revision: int) -> list[Any]:
    """All events up to the one of this revision."""
    found: list[Any] = []
    while not found or int(found[-1]["kv"]["mod_revision"]) < revision:
        found += (await stream.message())["events"]
    return found


async def test_a_thousand_watches_are_told_all_events_in_order(wire: EtcdWire) -> None:
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(wire.watch(**PREFIX)) for _ in range(WATCHERS)]
        assert await watchers(wire) == [WATCHERS]
        for number in range(4):
            await change(wire, number)

        told = await asyncio.gather(*(events_until(stream, 5) for stream in streams))

    kinds = [(event["kv"]["key"], int(event["kv"]["mod_revision"]), event.get("type")) for event in told[0]]
    assert kinds == [
        (KEY, 2, None),
        (KEY, 3, None),
        (KEY, 4, None),
        ("dy8y", 4, None),
        (KEY, 5, "DELETE"),
        ("dy8y", 5, "DELETE"),
    ]
    assert all(events == told[0] for events in told)
    await until_watched_by(wire, 0)


async def test_watches_that_begin_at_any_revision_are_told_the_same_from_there_on(wire: EtcdWire) -> None:
    """Some before, some after and some while the others are told, while changes go on."""
    changes = 60
    whole = await wire.post("/v3/kv/range", key=KEY)
    first = int(whole["header"]["revision"]) + 1

    async def changing() -> None:
        for number in range(changes):
            await change(wire, number)

    async def watching(start: int) -> list[Any]:
        async with wire.watch(**PREFIX, start_revision=start) as stream:
            return await events_until(stream, first + changes - 1)

    starts = [first + number % changes for number in range(2 * changes)]
    changes_made = asyncio.ensure_future(changing())
    told = await asyncio.gather(*(watching(start) for start in starts))
    await changes_made

    expected = told[0]
    assert [int(event["kv"]["mod_revision"]) for event in expected if event["kv"]["key"] == KEY] == starts[
        :changes
    ]
    for start, events in zip(starts, told, strict=True):
        assert events == [event for event in expected if int(event["kv"]["mod_revision"]) >= start]


async def test_two_nodes_tell_the_same(postgres_url: str) -> None:
    """Watches of both, of what is changed at either."""
    async with two_planes(postgres_url) as wire, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(wire.watch(**PREFIX)) for _ in range(40)]
        assert await watchers(wire) == [20, 20]
        for number in range(12):
            await change(wire, number)

        told = await asyncio.gather(*(events_until(stream, 13) for stream in streams))

        assert len(told[0]) == 18
        assert all(events == told[0] for events in told)


@asynccontextmanager
async def deaf_watch(port: int, start_revision: int) -> AsyncIterator[asyncio.StreamReader]:
    """Over a connection whose kernel keeps no more than some kilobytes; nothing is read before the caller does."""
    connecting = socket.socket()
    connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connecting.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connecting, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connecting, limit=4096)
    body = json.dumps({"create_request": {**PREFIX, "start_revision": start_revision}}).encode()
    writer.write(
        b"POST /v3/watch HTTP/1.1\r\nHost: plane\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    await reader.readuntil(b"\r\n\r\n")
    try:
        yield reader
    finally:
        writer.transport.abort()


async def revisions_of(reader: asyncio.StreamReader) -> AsyncIterator[int]:
    """Of the events that come whole, until the connection ends."""
    while True:
        try:
            size = int(await reader.readuntil(b"\r\n"), 16)
            chunk = await reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        if not size:
            return
        for event in json.loads(chunk)["result"].get("events", []):
            yield int(event["kv"]["mod_revision"])


async def test_a_slow_watch_misses_nothing_and_is_told_nothing_twice() -> None:
    """It falls behind by more than the buffers of both sides hold, and may be cut off: then it goes on from where it was."""
    puts = 100
    value = "QUFB" * (LARGE_BYTES // 4)
    async with etcd_server(qrf_disabled=True) as server:
        wire = EtcdWire([url_of(server)])
        seen: list[int] = []
        async with asyncio.timeout(2 * ANSWER_S_MAX):
            while not seen or seen[-1] < puts + 1:
                start = seen[-1] + 1 if seen else 2
                async with deaf_watch(wire.ports[0], start) as reader:
                    if start == 2:
                        for _ in range(puts):
                            await wire.post("/v3/kv/put", key=KEY, value=value)
                    async for revision in revisions_of(reader):
                        seen.append(revision)
                        if revision == puts + 1:
                            break

    assert seen == list(range(2, puts + 2))


async def test_a_slow_watch_holds_up_no_other(wire: EtcdWire) -> None:
    value = "QUFB" * (LARGE_BYTES // 4)
    async with deaf_watch(wire.ports[0], 2), wire.watch(**PREFIX) as stream:
        for _ in range(40):
            await wire.post("/v3/kv/put", key=KEY, value=value)

            (event,) = await stream.events(1)

            assert len(event["kv"]["value"]) == len(value)


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_client_that_goes_away_frees_its_watch(wire: EtcdWire, is_reset: bool) -> None:
    """Nothing is told to it meanwhile: it is noticed without that."""
    async with wire.watch(**PREFIX) as stays:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", wire.ports[0])
            body = json.dumps({"create_request": PREFIX}).encode()
            writer.write(
                b"POST /v3/watch HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            await reader.readuntil(b"}\n")
            if is_reset:
                own: socket.socket = writer.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.transport.abort()
            else:
                writer.close()

        await until_watched_by(wire, 1)

        await change(wire, 0)
        assert len(await stays.events(1)) == 1
    await until_watched_by(wire, 0)


async def test_a_slow_client_that_goes_away_frees_its_watch(wire: EtcdWire) -> None:
    """In the middle of what it is told."""
    value = "QUFB" * (LARGE_BYTES // 4)
    async with deaf_watch(wire.ports[0], 2):
        for _ in range(20):
            await wire.post("/v3/kv/put", key=KEY, value=value)
        assert await watchers(wire) == [1]

    await until_watched_by(wire, 0)
