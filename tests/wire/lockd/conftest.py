"""A plane on loopback and a client that speaks lockd's wire: by the express lane, by plain ASGI, through a gateway, over a
store on disk or on PostgreSQL, to two nodes on one store in turns, and to a plane of five services, each once or twice."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from holdfast.common.express.limits import DEFAULT_LIMITS, Limits
from holdfast.common.role import SERVICES
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, gateway_before, url_of, with_identity
from tests.infra.split import split_services
from tests.wire.lockd.asgi_cases import ASGI_CASES

# What runs always; the rest of these ways is for `make test-all`. Through a gateway goes a waiting and a plain kind of
# route, to two nodes what waits for leases and what streams; over plain ASGI one case for each route (`asgi_cases`).
ALWAYS = {
    "gateway": [
        "test_leases",
        "test_coordinators",
        "test_keepalive_batch",
        "test_locks",
        "test_signals",
        "test_watch",
    ],
    "asgi": ["test_queue_streams"],
    "nodes": ["test_leases", "test_queue_streams", "test_queue_sending", "test_watch"],
    "split": ["test_queue_sending", "test_watch"],
    "replicas": ["test_queue_sending"],
    "disk": ["test_queue_sending"],
    "postgres": [],
}


# A node that comes decides about keys of locks after a while only: tests/wire/dflockd/test_http_nodes.py waits for that.
OF_LOCKS = ("test_locks", "test_signals")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _is_of_other_nodes(item)]
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not _runs_always(item):
            item.add_marker(pytest.mark.long)


def _is_of_other_nodes(item: pytest.Item) -> bool:
    ways = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return item.path.stem in OF_LOCKS and ways.get("wire") in ("nodes", "replicas")


def _runs_always(item: pytest.Function) -> bool:
    way = str(item.callspec.params.get("wire"))
    is_of_asgi = way == "asgi" and _case(item) in ASGI_CASES.values()
    return is_of_asgi or item.path.stem in ALWAYS.get(way, [item.path.stem])


def _case(item: pytest.Function) -> str:
    return f"{item.path.stem}::{item.originalname}"


class Lease(NamedTuple):
    """What acquire answered."""

    key: str
    lease_id: str
    txn_id: str
    token: int

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Lease-ID": self.lease_id, "X-Txn-ID": self.txn_id, "X-Fencing-Token": str(self.token)}


class Wire:
    """Requests as lockd's clients send them."""

    def __init__(
        self, client: httpx.AsyncClient, services_urls: Sequence[str] = ("",), *, nodes: int = 1
    ) -> None:
        self._client = client
        self._services_urls = services_urls
        self.nodes = nodes  # That are called in turns.

    @property
    def port(self) -> int:
        port = self._client.base_url.port
        assert port is not None
        return port

    @property
    def is_behind_a_gateway(self) -> bool:
        """Whether another process does the work."""
        return not any(url.endswith(f":{self.port}") for url in self._services_urls if url)

    def stream(self, path: str, body: Any) -> AbstractAsyncContextManager[httpx.Response]:
        """An answer that goes on; leaving the block hangs up."""
        return self._client.stream("POST", path, json=body)

    def opened(
        self, path: str, headers: Mapping[str, str] | None = None, **query: object
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """The same, of a GET."""
        parameters = {name: str(value) for name, value in query.items()}
        return self._client.stream("GET", path, headers=headers, params=parameters)

    async def talk(self, request: bytes, *, is_cut_off: bool = False) -> bytes:
        """Send these bytes, and hang up at once or read the answer to its end."""
        url = self._client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(request)
        await writer.drain()
        answer = b"" if is_cut_off else await reader.read()
        writer.close()
        return answer

    async def post(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **query: object
    ) -> httpx.Response:
        parameters = {name: str(value) for name, value in query.items()}
        if isinstance(body, bytes):
            return await self._client.post(path, content=body, headers=headers, params=parameters)
        if body is None:
            return await self._client.post(path, headers=headers, params=parameters)
        return await self._client.post(path, json=body, headers=headers, params=parameters)

    async def get(
        self, path: str, headers: Mapping[str, str] | None = None, **query: object
    ) -> httpx.Response:
        parameters = {name: str(value) for name, value in query.items()}
        return await self._client.get(path, headers=headers, params=parameters)

    async def acquire(self, key: str, **body: object) -> Lease:
        asked = {"key": key, "owner": "worker-1", "ttl_seconds": 30, "block_seconds": -1, **body}
        answer = await self.post("/v1/acquire", asked)
        assert answer.status_code == 200, answer.text
        members = answer.json()
        return Lease(members["key"], members["lease_id"], members["txn_id"], members["fencing_token"])

    async def update(self, lease: Lease, body: bytes, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.post("/v1/update", body, {**lease.headers, **named}, key=lease.key)

    async def release(self, lease: Lease, **body: object) -> httpx.Response:
        asked = {"key": lease.key, "lease_id": lease.lease_id, "txn_id": lease.txn_id, **body}
        return await self.post("/v1/release", asked, {"X-Fencing-Token": str(lease.token)})

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> httpx.Response:
        parameters = {name: str(value) for name, value in query.items()}
        # None leaves the query of the path as it is.
        return await self._client.request(
            method, path, content=body, headers=headers, params=parameters or None
        )

    async def attach(
        self,
        lease: Lease,
        name: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> httpx.Response:
        claimed = {**lease.headers, **(headers or {})}
        return await self.post("/v1/attachments", body, claimed, key=lease.key, name=name, **query)

    async def attach_chunked(self, lease: Lease, name: str, pieces: Iterable[bytes]) -> httpx.Response:
        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return await self.request("POST", "/v1/attachments", body(), lease.headers, key=lease.key, name=name)

    async def list_attachments(self, key: str, lease: Lease | None = None) -> httpx.Response:
        headers, query = _reader(lease)
        return await self.get("/v1/attachments", headers, key=key, **query)

    async def download(self, key: str, lease: Lease | None = None, **selector: object) -> httpx.Response:
        headers, query = _reader(lease)
        return await self.get("/v1/attachment", headers, key=key, **query, **selector)

    async def delete_attachment(self, lease: Lease, **selector: object) -> httpx.Response:
        return await self.request("DELETE", "/v1/attachment", None, lease.headers, key=lease.key, **selector)

    async def delete_attachments(self, lease: Lease) -> httpx.Response:
        return await self.request("DELETE", "/v1/attachments", None, lease.headers, key=lease.key)

    async def metrics(self) -> str:
        """What the processes count that do the work."""
        told = [await self._client.get(f"{url}/metrics") for url in self._services_urls]
        return "".join([one.text for one in told])

    async def read(self, key: str) -> httpx.Response:
        return await self.post("/v1/get", key=key, public=1)


def _reader(lease: Lease | None) -> tuple[dict[str, str], dict[str, object]]:
    return ({}, {"public": 1}) if lease is None else (lease.headers, {})


@asynccontextmanager
async def split_wire(store_url: str, limits: Limits = DEFAULT_LIMITS, **settings: Any) -> AsyncIterator[Wire]:
    """Five servers, as `holdfast serve gateway|leases|state|queue|txn` runs them."""
    async with (
        split_services(store_url, **settings) as peers,
        gateway_before(limits=limits, **peers, **settings) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20, verify=False) as client,
    ):
        yield Wire(client, [peers[f"peer_{role}"] for role in SERVICES])


@asynccontextmanager
async def replicas_wire(store_url: str, **settings: Any) -> AsyncIterator[Wire]:
    """Two of each of the five; calls go to the gateways in turns."""
    async with split_services(store_url, replicas=2, **settings) as peers, AsyncExitStack() as stack:
        gateways = [
            url_of(await stack.enter_async_context(gateway_before(**peers, **settings))) for _ in range(2)
        ]
        client = httpx.AsyncClient(base_url=gateways[0], timeout=20, transport=InTurns(gateways))
        urls = [url for role in SERVICES for url in peers[f"peer_{role}"].split(",")]
        yield Wire(await stack.enter_async_context(client), urls)


class InTurns(httpx.AsyncBaseTransport):
    """Sends each request to the next of several nodes, so that no two calls in a row meet in one memory."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._ports = itertools.cycle([httpx.URL(url).port for url in urls])
        self._transport = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/metrics":  # Those are asked for by node.
            request.url = request.url.copy_with(port=next(self._ports))
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


@asynccontextmanager
async def nodes_wire(store_url: str, **settings: Any) -> AsyncIterator[Wire]:
    """Two planes, each all in one, on one store; calls go to them in turns."""
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for _ in range(2):
            app = create_app(GatewaySettings.isolated(store=store_url, **settings))
            server = running(app, LOOPBACK, options=ServeOptions(drain_grace_s=0))
            urls.append(url_of(await stack.enter_async_context(server)))
        client = httpx.AsyncClient(base_url=urls[0], timeout=20, transport=InTurns(urls))
        yield Wire(await stack.enter_async_context(client), urls, nodes=len(urls))


SHARED = {"nodes": nodes_wire, "split": split_wire, "replicas": replicas_wire}
"""Of several processes on one database."""
LASTING = ("disk", "postgres", *SHARED)
"""Ways to a store that outlives its processes."""


@pytest.fixture(params=["lane", "asgi", "gateway", "disk", "postgres", *SHARED])
async def wire(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Wire]:
    if request.param in SHARED:
        async with SHARED[request.param](request.getfixturevalue("postgres_url")) as wire:
            yield wire
        return
    store_url = "mem://"
    if request.param == "disk":
        store_url = f"disk://{tmp_path}/store"
    elif request.param == "postgres":
        store_url = request.getfixturevalue("postgres_url")
    app = with_identity(create_app(GatewaySettings.isolated(store=store_url)))
    options = ServeOptions(is_express=request.param != "asgi", drain_grace_s=0)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(app, LOOPBACK, options=options))
        services_url = url_of(server)
        if request.param == "gateway":
            server = await stack.enter_async_context(gateway_before(services_url))
        called: set[str] = set()

        async def note(request: httpx.Request) -> None:
            called.add(f"{request.method} {request.url.path}")

        client = httpx.AsyncClient(
            base_url=url_of(server), timeout=20, verify=False, event_hooks={"request": [note]}
        )
        yield Wire(await stack.enter_async_context(client), [services_url])
        if request.param == "asgi":
            shown = {route for route, case in ASGI_CASES.items() if case == _case(request.node)}
            assert shown <= called, f"asgi_cases names this test for {shown - called}"
