"""Watches, locks and elections of etcd's API over a plane in one process: what streams, waits, and ends with its client."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic_core import from_json

from holdfast.common.serving.app import parts_of
from holdfast.common.serving.drain import Drain
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.state.app import create_app as create_state_app
from holdfast.state.protocol.etcd import watch as watch_module
from holdfast.state.settings import StateSettings
from tests.infra.gateway import LOOPBACK, SECRET, gateway_before, url_of

WAYS = pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
PREFIXES = pytest.mark.parametrize("prefix", ["/v3", "/v3beta", "/v3alpha"])


class Plane:
    """Calls of one client; texts in place of base64."""

    def __init__(self, client: httpx.AsyncClient, drain: Drain) -> None:
        self.client = client
        self.drain = drain

    async def post(self, path: str, **members: Any) -> dict[str, Any]:
        answer = await self.client.post(f"/v3{path}", json=members)
        found: dict[str, Any] = answer.json()
        return found

    async def put(self, key: str, value: str = "") -> int:
        return int((await self.post("/kv/put", key=b64(key), value=b64(value)))["header"]["revision"])

    async def keys(self, name: str) -> list[dict[str, Any]]:
        """The oldest first."""
        members = {"key": b64(f"{name}/"), "range_end": b64(f"{name}0"), "sort_target": "CREATE"}
        kvs: list[dict[str, Any]] = (await self.post("/kv/range", **members)).get("kvs", [])
        return kvs

    async def until(self, name: str, count: int) -> None:
        """There are as many keys of the name as that."""
        async with self.stream("/watch", created(f"{name}/", range_end=b64(f"{name}0"))) as messages:
            async for _ in messages:
                if len(await self.keys(name)) == count:
                    return

    async def watches(self) -> str:
        """Of the store that are open."""
        lines = (await self.client.get("/metrics")).text.splitlines()
        return next(line for line in lines if line.startswith("holdfast_storage_watches "))

    @asynccontextmanager
    async def stream(self, path: str, body: bytes) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The messages of a stream, each of which came as one chunk."""
        async with asyncio.timeout(30), self.client.stream("POST", f"/v3{path}", content=body) as answer:
            assert answer.status_code == 200
            yield _results(answer)


async def _results(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for chunk in answer.aiter_raw():
        assert chunk.endswith(b"}\n")
        yield from_json(chunk)["result"]


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


@asynccontextmanager
async def plane(shape: str = "all in one", *, is_express: bool = True) -> AsyncIterator[Plane]:
    """In one process, or behind a gateway."""
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with AsyncExitStack() as stack:
        if shape == "gateway":
            settings = StateSettings.isolated(store="mem://", internal_secret=SECRET)
            app = create_state_app(settings)
            behind = await stack.enter_async_context(running(app, LOOPBACK, options=options))
            server = await stack.enter_async_context(gateway_before(url_of(behind), is_express=is_express))
        else:
            app = create_app(GatewaySettings.isolated(store="mem://", qrf_disabled=True))
            server = await stack.enter_async_context(running(app, LOOPBACK, options=options))
        client = httpx.AsyncClient(base_url=url_of(server), timeout=30)
        yield Plane(await stack.enter_async_context(client), parts_of(app).drain)


def created(key: str, **members: Any) -> bytes:
    return httpx.Request("POST", "/", json={"create_request": {"key": b64(key), **members}}).content


@WAYS
async def test_several_requests_of_one_body_are_one_stream(is_express: bool) -> None:
    body = b"\n".join(
        [
            created("a"),
            created("b") + created("c", watch_id="5"),
            created("c", watch_id=5),
            b'{"cancel_request":{"watch_id":"1"}} {"cancel_request":{"watch_id":"77"}}',
            b'{"progress_request":{}}',
            created("z", range_end=b64("a")),
        ]
    )
    async with plane(is_express=is_express) as served, served.stream("/watch", body) as messages:
        told = [await anext(messages) for _ in range(7)]
        for key in "abc":
            await served.put(key)
        events = [await anext(messages) for _ in range(2)]

    for message in told:
        assert message.pop("header")["revision"] == "1"
    assert told == [
        {"created": True},
        {"watch_id": "1", "created": True},
        {"watch_id": "5", "created": True},
        {
            "watch_id": "-1",
            "created": True,
            "canceled": True,
            "cancel_reason": "mvcc: duplicate watch ID provided on the WatchStream",
        },
        {"watch_id": "1", "canceled": True},
        {"watch_id": "-1"},
        {
            "watch_id": "-1",
            "created": True,
            "canceled": True,
            "cancel_reason": "mvcc: watcher range is empty",
        },
    ]
    keys = [(event.get("watch_id", "0"), event["events"][0]["kv"]["key"]) for event in events]
    assert keys == [("0", b64("a")), ("5", b64("c"))]


@WAYS
@pytest.mark.parametrize("shape", ["all in one", "gateway"])
async def test_a_message_is_a_chunk_however_large_and_however_quick(shape: str, is_express: bool) -> None:
    sizes = [size for size in (10, 1000, 100_000, 500_000) for _ in range(8)]
    async with plane(shape, is_express=is_express) as served:
        url = served.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        body = created("a")
        writer.write(
            b"POST /v3/watch HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        async with asyncio.timeout(60):
            await reader.readuntil(b"\r\n\r\n")
            chunks = [await _chunk(reader)]
            await asyncio.gather(*(served.put("a", "x" * size) for size in sizes))
            chunks += [await _chunk(reader) for _ in sizes]
        writer.close()

    messages = [from_json(chunk)["result"] for chunk in chunks]
    assert [len(message.get("events", ())) for message in messages] == [0] + [1] * len(sizes)
    assert all(chunk.endswith(b"}\n") for chunk in chunks)


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readline()).partition(b";")[0], 16)
    chunk = await reader.readexactly(size)
    assert await reader.readexactly(2) == b"\r\n"
    return chunk


@WAYS
async def test_a_stream_ends_when_none_of_its_watches_is_left(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        for _ in range(4):
            await served.put("a")
        await served.post("/kv/compaction", revision="4")
        body = created("a", start_revision="2") + created("z", range_end=b64("a"))
        async with served.stream("/watch", body) as messages:
            told = [message async for message in messages]

    assert [(message.get("created"), message.get("canceled")) for message in told] == [
        (True, None),
        (True, True),
        (None, True),
    ]
    assert told[2]["compact_revision"] == "4"
    assert "revision" not in told[2]["header"]


@WAYS
async def test_a_watch_is_gone_with_its_client(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        before = await served.watches()
        async with served.stream("/watch", created("a") + created("b")) as messages:
            await anext(messages)
            meanwhile = await served.watches()
        async with asyncio.timeout(20):
            while await served.watches() != before:
                pass

    assert meanwhile != before


@WAYS
async def test_a_silent_watch_is_told_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, is_express: bool
) -> None:
    monkeypatch.setattr(watch_module, "PROGRESS_S", 0.05)
    async with plane(is_express=is_express) as served:
        body = created("a", progress_notify=True, watch_id=3)
        async with served.stream("/watch", body) as messages:
            await anext(messages)
            revision = await served.put("other")
            told = await anext(messages)
            while told["header"]["revision"] != str(revision):
                told = await anext(messages)

    assert told.keys() == {"header", "watch_id"}
    assert told["watch_id"] == "3"


@WAYS
async def test_a_drain_ends_a_stream_without_breaking_it(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        for body in (created("a"), created("a") + created("b"), b'{"progress_request":{}}'):
            async with served.stream("/watch", body) as messages:
                await anext(messages)
                served.drain.begin(0)
                rest = [message async for message in messages]
                served.drain.is_draining = False
            assert all(message["created"] for message in rest)


@WAYS
async def test_requests_that_no_watch_understands_are_refused_as_a_whole(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        bodies = (b"", b"{}", created("a") + b"{bad", b'{"create_request":{"key":1}}', b" " * 2_000_000)
        answers = [await served.client.post("/v3/watch", content=body) for body in bodies]

    assert [answer.status_code for answer in answers] == [400, 400, 400, 500, 400]
    assert answers[3].json() == {
        "error": "json: cannot unmarshal number into Go value of type []uint8",
        "message": "json: cannot unmarshal number into Go value of type []uint8",
        "code": 2,
    }
    assert answers[4].json()["message"] == "etcdserver: request is too large"


@WAYS
@PREFIXES
async def test_pages_of_other_origins_may_call(prefix: str, is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        answers = [
            await served.client.options(f"{prefix}/kv/range"),
            await served.client.post(f"{prefix}/kv/range", content=b'{"key":"YQ=="}'),
            await served.client.post(f"{prefix}/kv/range", content=b"{"),
            await served.client.get(f"{prefix}/kv/range"),
            await served.client.post(f"{prefix}/kv/nothing"),
        ]

    assert [answer.status_code for answer in answers] == [204, 200, 400, 405, 404]
    assert {answer.headers["access-control-allow-origin"] for answer in answers} == {"*"}
    assert answers[3].headers["allow"] == "OPTIONS, POST"


@WAYS
async def test_a_lock_goes_to_those_who_still_wait_in_their_order(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        first = await served.post("/lock/lock", name=b64("job"))
        gone = asyncio.create_task(served.post("/lock/lock", name=b64("job")))
        await served.until("job", 2)
        next_one = asyncio.create_task(served.post("/lock/lock", name=b64("job")))
        await served.until("job", 3)
        last = asyncio.create_task(served.post("/lock/lock", name=b64("job")))
        await served.until("job", 4)
        order = [kv["key"] for kv in await served.keys("job")]

        gone.cancel()
        await served.until("job", 3)
        await served.post("/lock/unlock", key=first["key"])
        second = await next_one
        assert not last.done()
        await served.post("/lock/unlock", key=second["key"])
        third = await last
        leases = await served.post("/lease/leases")

    assert [first["key"], second["key"], third["key"]] == [order[0], order[2], order[3]]
    assert len(leases["leases"]) == 3  # That of the one who went away is gone.


@WAYS
async def test_a_lease_has_a_lock_once_and_ends_with_it(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        await served.post("/lease/grant", ID="26", TTL="60")
        first, again = [await served.post("/lock/lock", name=b64("job"), lease="26") for _ in range(2)]
        waiting = asyncio.create_task(served.post("/lock/lock", name=b64("job")))
        await served.until("job", 2)
        await served.post("/lease/revoke", ID="26")
        taken = await waiting
        unknown = await served.post("/lock/lock", name=b64("job"), lease="27")
        nameless = await served.post("/lock/lock")

    assert first == again
    assert first["key"] == b64("job/1a")
    assert taken["key"] != first["key"]
    assert unknown["message"] == "etcdserver: requested lease not found"
    assert nameless["message"] == "etcdserver: key is not provided"


@WAYS
async def test_a_waiter_whose_lease_ends_is_told_so(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        first = await served.post("/lock/lock", name=b64("job"))
        await served.post("/lease/grant", ID="26", TTL="60")
        waiting = asyncio.create_task(served.post("/lock/lock", name=b64("job"), lease="26"))
        await served.until("job", 2)
        await served.post("/lease/revoke", ID="26")
        await served.post("/lock/unlock", key=first["key"])
        told = await waiting

    assert told == {"error": "mutex: session is expired", "message": "mutex: session is expired", "code": 2}


@WAYS
async def test_a_drain_ends_the_wait_for_a_lock(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        await served.post("/lock/lock", name=b64("job"))
        waiting = asyncio.create_task(served.post("/lock/lock", name=b64("job")))
        await served.until("job", 2)
        served.drain.begin(0)
        told = await waiting
        served.drain.is_draining = False
        await served.until("job", 1)

    assert told["code"] == 14


@WAYS
async def test_an_election(is_express: bool) -> None:
    async with plane(is_express=is_express) as served:
        name = b64("el")
        nobody = await served.post("/election/leader", name=name)
        observing = served.stream("/election/observe", b'{"name":"%b"}' % name.encode())
        async with asyncio.TaskGroup() as tasks:
            messages = tasks.create_task(observing.__aenter__())
            one = (await served.post("/election/campaign", name=name, value=b64("one")))["leader"]
            observed = await messages
        values = [(await anext(observed))["kv"]["value"]]
        other = asyncio.create_task(served.post("/election/campaign", name=name, value=b64("two")))
        await served.until("el", 2)
        await served.post("/election/proclaim", leader=one, value=b64("new"))
        values.append((await anext(observed))["kv"]["value"])
        leader = await served.post("/election/leader", name=name)
        stale = await served.post("/election/proclaim", leader={**one, "rev": "1"}, value=b64("old"))
        await served.post("/election/resign", leader=one)
        two = (await other)["leader"]
        values.append((await anext(observed))["kv"]["value"])
        gone = await served.post("/election/proclaim", leader=one, value=b64("old"))
        again = await served.post("/election/resign", leader=one)
        nameless = await served.post("/election/resign", leader={})
        await observing.__aexit__(None, None, None)

    assert nobody == {"error": "election: no leader", "message": "election: no leader", "code": 2}
    assert (one["name"], one["key"]) == (name, b64(f"el/{int(one['lease']):x}"))
    assert (leader["kv"]["key"], leader["kv"]["value"]) == (one["key"], b64("new"))
    assert stale["message"] == gone["message"] == "election: not leader"
    assert again.keys() == {"header"}
    assert nameless["message"] == '"leader" field must be provided'
    assert two["key"] != one["key"]
    assert values == [b64("one"), b64("new"), b64("two")]
