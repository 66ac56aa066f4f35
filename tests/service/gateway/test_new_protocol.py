"""A protocol that nothing else knows: declared here, it is served, documented, admitted, refused and proxied like all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json, to_json

from holdfast.common.errors import HoldfastError, NotReady
from holdfast.common.express.limits import Limits
from holdfast.common.express.message import JSON_HEADERS, Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Admission, Begins, Duration, Group
from holdfast.common.role import Role
from holdfast.common.security.principal import OUTSIDE, Permission, Principal, PrincipalKind
from holdfast.common.security.tls import server_context
from holdfast.common.serving.app import parts_of
from holdfast.common.serving.listener import Listener, ListenerDeclaration
from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.proxy import proxied_route
from holdfast.gateway.settings import GatewaySettings
from holdfast.txn.hosting import create_role_app
from tests.infra.gateway import LOOPBACK, SECRET, gateway_settings, url_of
from tests.infra.program import free_port
from tests.service.common.certificates import Authority
from tests.service.txn.tc_node import Certificates

BODY_BYTES_MAX = 100
# Some memory is always in use, so with these limits the first sample engages the throttle.
ALWAYS_ENGAGED: dict[str, Any] = {
    "qrf_memory_soft_limit_percent": 1e-9,
    "qrf_memory_hard_limit_percent": 1e-9,
    "lsf_sample_interval_s": 0.01,
    "qrf_wait_s_max": 0,
}
SHAPES = pytest.mark.parametrize("shape", ["all in one", "gateway", "service"])
WAYS = pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])


class NumberedError(BaseModel):
    code: int
    message: str


class NumberedDialect:
    """Errors are numbers, and every status is told in the body."""

    prefixes: tuple[str, ...] = ("/v9", "/v9beta")
    error_model: type[BaseModel] = NumberedError

    def answer(self, error: HoldfastError) -> Answer:
        return Answer(error.status, to_json({"code": error.status, "message": error.code}), JSON_HEADERS)


DIALECT = NumberedDialect()


class TokenMissing(HoldfastError):
    """A caller without a token."""

    code, status = "token_missing", 401


def by_token(request: Request) -> Principal:
    """`Bearer <name> <scope> …`; a guest may do nothing."""
    kind, _, rest = (request.header(b"authorization") or "").partition(" ")
    if kind != "Bearer":
        raise TokenMissing("send a token")
    name, *scopes = rest.split()
    permissions: frozenset[Permission] = frozenset() if name == "guest" else OUTSIDE
    return Principal(PrincipalKind.TOKEN, name, permissions=permissions, scopes=tuple(scopes))


class PutRequest(BaseModel):
    model_config = ConfigDict(strict=True)

    key: str
    wait: int | None = None


def _asked_wait_s(request: Request) -> int | None:
    return PutRequest.model_validate_json(request.body).wait


class Shouting(asyncio.Protocol):
    """A line protocol: what comes in goes out in capitals."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data.upper())  # type: ignore[attr-defined]  # a socket's transport


class NewProtocol:
    """All that a module with a new protocol has to say."""

    listeners: Sequence[ListenerDeclaration] = (
        ListenerDeclaration(name="shouting", address=lambda settings: "127.0.0.1:0", connections=Shouting),
        ListenerDeclaration(
            name="numbered",
            address=lambda settings: "127.0.0.1:0",
            paths=("/v9/", "/version", "/health"),
            version={"numbered": "9.1"},
        ),
        ListenerDeclaration(name="mixed", address=lambda settings: "127.0.0.1:0", paths=("/v9/", "/v1/")),
    )

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.released = asyncio.Event()
        router = ExpressRouter(tags=("numbered",), service=Role.STATE, affinity="key", dialect=DIALECT)
        router.add(
            "/v9/put",
            self.put,
            request_model=PutRequest,
            body_limit_bytes=BODY_BYTES_MAX,
            admission=Admission(Group.LOCK, Begins.ALWAYS, _asked_wait_s),
        )
        router.add("/v9/slow", self.wait)
        router.add("/v9/wait", self.wait, duration=Duration.WAITING)
        router.add("/v9/broken", self.broken)
        router.add("/v9/coordinate", self.coordinate, permission=Permission.COORDINATOR_SERVER)
        proved = ExpressRouter(service=Role.STATE, dialect=DIALECT, identify=by_token)
        proved.add("/v9/whoami", self.who_am_i)
        self.routers: Sequence[ExpressRouter] = (router, proved)
        self.internal_routers: Sequence[ExpressRouter] = ()

    @asynccontextmanager
    async def running(self, layers: object) -> AsyncIterator[None]:
        yield

    async def put(self, request: Request, body: PutRequest) -> Answer:
        """Put nothing anywhere."""
        return json_answer({"key": body.key, "by": self.name, "caller": request.principal.kind})

    async def wait(self, request: Request, body: None) -> Answer:
        await self.released.wait()
        return json_answer({"by": self.name})

    async def who_am_i(self, request: Request, body: None) -> Answer:
        who = request.principal
        has_certificate = who.certificate is not None
        return json_answer([self.name, who.kind, who.name, who.scopes, has_certificate])

    async def coordinate(self, request: Request, body: None) -> Answer:
        return json_answer({"caller": request.principal.kind})

    async def broken(self, request: Request, body: None) -> Answer:
        raise RuntimeError("a defect")


@asynccontextmanager
async def plane(
    protocol: NewProtocol, *, is_express: bool = True, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, PlaneServer]]:
    """All in one process."""
    read = GatewaySettings.isolated(store="mem://", listen="127.0.0.1:0", **settings)
    app = create_app(read, parts=[protocol])
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with (
        running(app, *listeners_of(app, read), options=options) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=30) as client,
    ):
        yield client, server


def port_of(server: PlaneServer, name: str) -> int:
    address = server.addresses_of(name)[0]
    assert isinstance(address, tuple)
    return address[1]


@WAYS
async def test_it_is_served_and_answers_errors_in_its_own_dialect(is_express: bool) -> None:
    async with plane(NewProtocol("me"), is_express=is_express) as (client, _):
        answers = [
            await client.post("/v9/put", json={"key": "a"}),
            await client.post("/v9/put", json={"key": 7}),
            await client.post("/v9/put", content=b"x" * (BODY_BYTES_MAX + 1)),
            await client.get("/v9/put"),
            await client.post("/v9/nothing"),
            await client.post("/v9beta"),
            await client.post("/v9/broken"),
        ]
        lockd = await client.post("/v1/nothing")
        unknown = await client.post("/v99")

    assert answers[0].json() == {"key": "a", "by": "me", "caller": "anonymous"}
    assert [(answer.status_code, answer.json()) for answer in answers[1:]] == [
        (400, {"code": 400, "message": "invalid_body"}),
        (413, {"code": 413, "message": "document_too_large"}),
        (405, {"code": 405, "message": "method_not_allowed"}),
        (404, {"code": 404, "message": "not_found"}),
        (404, {"code": 404, "message": "not_found"}),
        (500, {"code": 500, "message": "internal_error"}),
    ]
    assert answers[3].headers["allow"] == "POST"
    assert lockd.text == "404 page not found\n"
    assert unknown.json()["docs"] == "/docs"


async def test_requests_that_break_http_are_refused_in_the_dialect_of_their_path() -> None:
    protocol = NewProtocol()
    app = create_app(GatewaySettings.isolated(store="mem://"), parts=[protocol])
    options = ServeOptions(drain_grace_s=0, limits=Limits(headers_max=5))
    async with running(app, LOOPBACK, options=options) as server, httpx.AsyncClient() as client:
        headers = {f"x-{number}": "1" for number in range(9)}
        numbered = await client.post(f"{url_of(server)}/v9/put?x=1", headers=headers)
        lockd = await client.post(f"{url_of(server)}/v1/get", headers=headers)

    assert numbered.json() == {"code": 431, "message": "headers_too_large"}
    assert lockd.json()["error"] == "headers_too_large"


@WAYS
async def test_it_is_held_back_under_pressure(is_express: bool) -> None:
    async with plane(NewProtocol(), is_express=is_express, **ALWAYS_ENGAGED) as (client, _):
        while "holdfast_qrf_state 2\n" not in (await client.get("/metrics")).text:
            pass
        refused = await client.post("/v9/put", json={"key": "a"})
        unguarded = await client.post("/v9/broken")

    assert (refused.status_code, refused.json()) == (429, {"code": 429, "message": "throttled"})
    assert unguarded.status_code == 500


async def test_it_is_documented_with_its_errors_and_the_refusal_under_pressure() -> None:
    async with plane(NewProtocol()) as (client, _):
        api = (await client.get("/openapi.json")).json()

    put = api["paths"]["/v9/put"]["post"]
    assert put["tags"] == ["numbered"]
    assert put["description"] == "Put nothing anywhere."
    assert "throttled" in put["responses"]["429"]["description"]
    assert "NumberedError" in str(put["responses"]["429"]["content"])
    assert "429" not in api["paths"]["/v9/slow"]["post"]["responses"]


async def test_its_listener_opens_and_closes_with_the_plane() -> None:
    async with plane(NewProtocol()) as (_, server):
        address = server.addresses_of("shouting")[0]
        assert isinstance(address, tuple)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello\n")
        assert await reader.readline() == b"HELLO\n"

    async with asyncio.timeout(20):
        assert await reader.read() == b""
    with pytest.raises(ConnectionError):
        await asyncio.open_connection(*address)


@WAYS
async def test_it_may_have_a_port_of_its_own_in_its_own_dialect(is_express: bool) -> None:
    async with plane(NewProtocol("me"), is_express=is_express) as (client, server):
        base = f"http://127.0.0.1:{port_of(server, 'numbered')}"
        put = await client.post(f"{base}/v9/put", json={"key": "a"})
        answers = [
            await client.post(f"{base}/v9/put", content=b"x" * (BODY_BYTES_MAX + 1)),
            await client.get(f"{base}/v9/put"),
            await client.post(f"{base}/v9/nothing"),
        ]
        others = [await client.get(f"{base}{path}") for path in ("/v1/describe?key=a", "/healthz", "/")]

    assert put.json()["by"] == "me"
    assert [answer.json()["code"] for answer in answers] == [413, 405, 404]
    assert [answer.json() for answer in others] == [{"code": 404, "message": "not_found"}] * 3


@WAYS
@pytest.mark.parametrize("shape", ["all in one", "gateway"])
async def test_on_its_port_version_and_health_are_what_its_clients_look_for(
    shape: str, is_express: bool
) -> None:
    entered = plane if shape == "all in one" else split
    async with entered(NewProtocol("me"), is_express=is_express) as (client, server):
        base = f"http://127.0.0.1:{port_of(server, 'numbered')}"
        version, health, whole = [
            await client.get(path) for path in (f"{base}/version", f"{base}/health", "/version")
        ]
        posted = [await client.post(f"{base}{path}") for path in ("/version", "/health")]
        counted = (await client.get("/metrics")).text

    assert (version.status_code, version.content) == (200, b'{"numbered":"9.1"}')
    assert (health.status_code, health.content) == (200, b'{"health":"true"}')
    assert {"name": "holdfast", "numbered": "9.1"}.items() <= whole.json().items()
    assert [answer.json() for answer in posted] == [{"code": 405, "message": "method_not_allowed"}] * 2
    assert [answer.headers["allow"] for answer in posted] == ["GET"] * 2
    assert 'holdfast_http_requests_total{route="/version",method="GET",status="200"} 2' in counted
    assert 'holdfast_http_requests_total{route="/health",method="GET",status="200"} 1' in counted


async def test_a_service_of_a_split_plane_tells_its_version_too() -> None:
    async with service(NewProtocol()) as server, httpx.AsyncClient(base_url=url_of(server)) as client:
        version = (await client.get("/version")).json()

    assert (version["service"], version["numbered"]) == ("state", "9.1")


async def test_a_port_with_two_protocols_speaks_the_dialect_of_neither_outside_of_them() -> None:
    async with plane(NewProtocol()) as (client, server):
        base = f"http://127.0.0.1:{port_of(server, 'mixed')}"
        numbered, lockd, unknown = [
            await client.get(f"{base}{path}") for path in ("/v9/nothing", "/v1/nothing", "/version")
        ]

    assert numbered.json() == {"code": 404, "message": "not_found"}
    assert lockd.text == "404 page not found\n"
    assert unknown.json()["detail"] == "this listener serves /v9/ and /v1/ alone"


async def _answer_to(port: int, sent: bytes) -> tuple[int, Any]:
    """What the server says to these bytes, or by itself, and then ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(20):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ")[1]), from_json(body)


async def test_its_port_refuses_in_its_dialect_before_it_knows_a_path() -> None:
    app = create_app(GatewaySettings.isolated(store="mem://"), parts=[NewProtocol()])
    options = ServeOptions(drain_grace_s=0, limits=Limits(connections_max=1))
    numbered_port = Listener("127.0.0.1:0", name="numbered", paths=("/v9/", "/version", "/health"))
    async with running(app, LOOPBACK, numbered_port, options=options) as server:
        main, numbered = port_of(server, "main"), port_of(server, "numbered")
        broken = await _answer_to(main, b"\x00\r\n"), await _answer_to(numbered, b"\x00\r\n")
        _, one = await asyncio.open_connection("127.0.0.1", main)
        _, other = await asyncio.open_connection("127.0.0.1", numbered)
        full = await _answer_to(main, b""), await _answer_to(numbered, b"")
        one.close()
        other.close()

    assert [(status, body.get("error")) for status, body in (broken[0], full[0])] == [
        (400, "invalid_request"),
        (503, "too_many_connections"),
    ]
    assert broken[1] == (400, {"code": 400, "message": "invalid_request"})
    assert full[1] == (503, {"code": 503, "message": "too_many_connections"})


@WAYS
async def test_a_process_that_may_not_serve_says_so_in_its_dialect(is_express: bool) -> None:
    def refuse() -> None:
        raise NotReady("the clock of the store is too far away")

    app = create_app(GatewaySettings.isolated(store="mem://"), parts=[NewProtocol()])
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with running(app, LOOPBACK, options=options) as server, httpx.AsyncClient() as client:
        parts_of(app).hooks.check = refuse
        answer = await client.post(f"{url_of(server)}/v9/put", json={"key": "a"})

    assert (answer.status_code, answer.json()) == (503, {"code": 503, "message": "not_ready"})


@WAYS
async def test_a_gateway_without_its_service_says_so_in_its_dialect(is_express: bool) -> None:
    settings = gateway_settings([f"http://127.0.0.1:{free_port()}"])
    app = create_app(settings, Role.GATEWAY, [NewProtocol()])
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with running(app, LOOPBACK, options=options) as server, httpx.AsyncClient(timeout=30) as client:
        answer = await client.post(f"{url_of(server)}/v9/put", json={"key": "a"})

    assert (answer.status_code, answer.json()) == (503, {"code": 503, "message": "upstream_unavailable"})


def service_app(protocol: NewProtocol, **settings: Any) -> FastAPI:
    """The process of the service that the protocol belongs to."""
    read = GatewaySettings.isolated(store="mem://", internal_secret=SECRET, **settings)
    return create_role_app(read, Role.STATE, lambda drain, registry: protocol)


@asynccontextmanager
async def service(protocol: NewProtocol, *, is_express: bool = True) -> AsyncIterator[PlaneServer]:
    """The same on all its listeners."""
    app = service_app(protocol)
    listeners = listeners_of(app, GatewaySettings.isolated(listen="127.0.0.1:0"))
    async with running(
        app, *listeners, options=ServeOptions(is_express=is_express, drain_grace_s=0)
    ) as server:
        yield server


@asynccontextmanager
async def split(
    *protocols: NewProtocol, is_express: bool = True, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, PlaneServer]]:
    """Replicas of the service, each with its own, behind a gateway that has the declarations alone."""
    async with AsyncExitStack() as stack:
        options = ServeOptions(is_express=is_express, drain_grace_s=0)
        urls: list[str] = []
        for protocol in protocols:
            server = await stack.enter_async_context(service(protocol, is_express=is_express))
            urls.append(url_of(server))
        read = gateway_settings(urls, listen="127.0.0.1:0", **settings)
        app = create_app(read, Role.GATEWAY, [NewProtocol("gateway")])
        front = await stack.enter_async_context(running(app, *listeners_of(app, read), options=options))
        for peer in app.state.peers.clients[Role.STATE].peers:
            await peer.probe("/readyz")
        yield await stack.enter_async_context(httpx.AsyncClient(base_url=url_of(front), timeout=30)), front


async def test_its_port_opens_at_the_gateway_and_its_lines_at_their_service() -> None:
    async with split(NewProtocol()) as (_, gateway), service(NewProtocol()) as behind:
        ports = {
            name: (len(gateway.addresses_of(name)), len(behind.addresses_of(name)))
            for name in ("main", "numbered", "shouting")
        }
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(behind, "shouting"))
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()

    assert ports == {"main": (1, 1), "numbered": (1, 0), "shouting": (0, 1)}
    assert line == b"HELLO\n"


@WAYS
async def test_a_port_of_its_own_at_a_gateway_leads_where_the_main_one_does(is_express: bool) -> None:
    async with split(NewProtocol("one"), NewProtocol("two"), is_express=is_express) as (client, gateway):
        base = f"http://127.0.0.1:{port_of(gateway, 'numbered')}"
        by_key = {
            key: {
                (await client.post(f"{where}/v9/put", json={"key": key})).json()["by"]
                for where in ("", base, base)
            }
            for key in map(str, range(16))
        }
        who = await client.post(f"{base}/v9/whoami", headers={"authorization": "Bearer alice read"})
        unknown = await client.post(f"{base}/v9/nothing")

    assert all(len(replicas) == 1 for replicas in by_key.values())
    assert {name for replicas in by_key.values() for name in replicas} == {"one", "two"}
    assert who.json()[1:] == ["token", "alice", ["read"], False]
    assert unknown.json() == {"code": 404, "message": "not_found"}


@WAYS
async def test_a_gateway_sends_all_calls_about_one_thing_to_one_replica(is_express: bool) -> None:
    async with split(NewProtocol("one"), NewProtocol("two"), is_express=is_express) as (client, _):
        by_key = {
            key: {(await client.post("/v9/put", json={"key": key})).json()["by"] for _ in range(4)}
            for key in map(str, range(16))
        }
        wrong = await client.post("/v9/put", json={"key": 7})

    assert all(len(replicas) == 1 for replicas in by_key.values())
    assert {name for replicas in by_key.values() for name in replicas} == {"one", "two"}
    assert (wrong.status_code, wrong.json()) == (400, {"code": 400, "message": "invalid_body"})


@WAYS
async def test_a_gateway_gives_up_what_is_too_slow_and_lets_wait_what_may(
    monkeypatch: pytest.MonkeyPatch, is_express: bool
) -> None:
    monkeypatch.setattr(proxied_route, "ANSWER_S_MAX", 0.2)
    protocol = NewProtocol("me")
    async with split(protocol, is_express=is_express) as (client, _):
        waiting = asyncio.create_task(client.post("/v9/wait"))
        slow = await client.post("/v9/slow")
        unknown = await client.post("/v9/nothing")
        protocol.released.set()
        waited = await waiting

    assert (slow.status_code, slow.json()["code"]) == (504, 504)
    assert (unknown.status_code, unknown.json()["code"]) == (404, 404)
    assert waited.json() == {"by": "me"}


async def test_a_gateway_refuses_in_the_dialect_too() -> None:
    async with split(NewProtocol("me"), **ALWAYS_ENGAGED) as (client, gateway):
        while "holdfast_qrf_state 2\n" not in (await client.get("/metrics")).text:
            pass
        own_port = f"http://127.0.0.1:{port_of(gateway, 'numbered')}"
        refused = [await client.post(f"{base}/v9/put", json={"key": "a"}) for base in ("", own_port)]
        document = (await client.get("/openapi.json")).json()["paths"]["/v9/put"]["post"]

    assert [answer.status_code for answer in refused] == [429, 429]
    assert [answer.json() for answer in refused] == [{"code": 429, "message": "throttled"}] * 2
    assert "NumberedError" in str(document["responses"]["503"])


@asynccontextmanager
async def with_mutual_tls(
    shape: str, certificates: Certificates, *, is_express: bool
) -> AsyncIterator[PlaneServer]:
    """The process that faces the client, with a port that asks for certificates and one, `LOOPBACK`, that does not."""
    tls = Listener("127.0.0.1:0", tls=server_context(certificates.bundle), name="tls")
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    settings: dict[str, Any] = {
        "bundle": certificates.paths["server"],
        "storage_encryption_disabled": True,
        "tc_default_ca_allowed": True,
    }
    async with AsyncExitStack() as stack:
        if shape == "service":
            app = service_app(NewProtocol(), **settings)
        elif shape == "gateway":
            behind = await stack.enter_async_context(running(service_app(NewProtocol()), LOOPBACK))
            app = create_app(gateway_settings([url_of(behind)], **settings), Role.GATEWAY, [NewProtocol()])
        else:
            app = create_app(GatewaySettings.isolated(store="mem://", **settings), parts=[NewProtocol()])
        yield await stack.enter_async_context(running(app, LOOPBACK, tls, options=options))


@WAYS
@SHAPES
async def test_its_routes_are_open_to_those_alone_whom_their_permission_names(
    tmp_path: Path, shape: str, is_express: bool
) -> None:
    certificates = Certificates(Authority(), tmp_path, "a")
    answers: dict[str, httpx.Response] = {}
    async with with_mutual_tls(shape, certificates, is_express=is_express) as server:
        base = f"https://127.0.0.1:{port_of(server, 'tls')}"
        async with httpx.AsyncClient() as client:
            answers["nobody"] = await client.post(f"{url_of(server)}/v9/coordinate")
        for name in ("client", "server"):
            async with httpx.AsyncClient(verify=certificates.contexts[name]) as client:
                answers[name] = await client.post(f"{base}/v9/coordinate")

    assert {name: (answer.status_code, answer.json()) for name, answer in answers.items()} == {
        "nobody": (403, {"code": 403, "message": "tc_server_required"}),
        "client": (403, {"code": 403, "message": "tc_forbidden"}),
        "server": (200, {"caller": "certificate"}),
    }


async def test_without_mutual_tls_every_caller_has_every_permission() -> None:
    async with plane(NewProtocol()) as (client, _):
        answer = await client.post("/v9/coordinate")

    assert answer.json() == {"caller": "anonymous"}


@asynccontextmanager
async def entrance(
    shape: str, protocol: NewProtocol, *, is_express: bool
) -> AsyncIterator[httpx.AsyncClient]:
    """To the plane in one process, to one behind a gateway, or to its service without the gateway."""
    async with AsyncExitStack() as stack:
        if shape == "all in one":
            yield (await stack.enter_async_context(plane(protocol, is_express=is_express)))[0]
        elif shape == "gateway":
            yield (await stack.enter_async_context(split(protocol, is_express=is_express)))[0]
        else:
            server = await stack.enter_async_context(service(protocol, is_express=is_express))
            yield await stack.enter_async_context(httpx.AsyncClient(base_url=url_of(server)))


@WAYS
@SHAPES
async def test_its_callers_prove_who_they_are_in_its_own_way(shape: str, is_express: bool) -> None:
    async with entrance(shape, NewProtocol("me"), is_express=is_express) as client:
        known, nobody, guest = [
            await client.post("/v9/whoami", headers=headers)
            for headers in (
                {"authorization": "Bearer alice read write"},
                {"x-holdfast-internal": "v1.gateway"} if shape != "service" else {},
                {"authorization": "Bearer guest"},
            )
        ]
        other = await client.post("/v9/put", json={"key": "a"}, headers={"authorization": "Bearer alice"})

    assert known.json() == ["me", "token", "alice", ["read", "write"], False]
    assert (nobody.status_code, nobody.json()) == (401, {"code": 401, "message": "token_missing"})
    assert (guest.status_code, guest.json()) == (403, {"code": 403, "message": "permission_missing"})
    assert other.json()["caller"] == "anonymous"


@SHAPES
async def test_a_token_does_not_hide_the_certificate_of_its_connection(tmp_path: Path, shape: str) -> None:
    certificates = Certificates(Authority(), tmp_path, "a")
    async with (
        with_mutual_tls(shape, certificates, is_express=True) as server,
        httpx.AsyncClient(verify=certificates.contexts["client"]) as client,
    ):
        url = f"https://127.0.0.1:{port_of(server, 'tls')}/v9/whoami"
        answer = await client.post(url, headers={"authorization": "Bearer alice"})

    assert answer.json() == ["", "token", "alice", [], True]
