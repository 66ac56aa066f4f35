"""Listeners beside the main one: some paths of the app, or a protocol that is not HTTP, as the main one in all else."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from cryptography import x509

from holdfast.common.express.limits import Limits
from holdfast.common.security.bundle import parse_bundle
from holdfast.common.security.tls import client_context, server_context
from holdfast.common.serving.app import build_app, parts_of
from holdfast.common.serving.listener import (
    HEALTH,
    METRICS,
    Listener,
    ListenerDeclaration,
    ListenError,
    split_address,
)
from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.common.settings import PlaneSettings
from tests.infra.program import free_port
from tests.service.common.certificates import Authority
from tests.service.common.sample import Raw, Sample, request, status_of

QUICK = ServeOptions(drain_grace_s=0)
LOOPBACK = Listener("127.0.0.1:0")
SOON_S = 10


class Lines(asyncio.Protocol):
    """Answers each line with itself in capitals."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data.upper())  # type: ignore[attr-defined]  # a socket's transport


class LastWords(Lines):
    def shutdown(self) -> None:
        self._transport.write(b"BYE\n")  # type: ignore[attr-defined]  # a socket's transport
        self._transport.close()


def _lines(
    factory: Callable[[], asyncio.Protocol] = Lines,
    *,
    address: str = "127.0.0.1:0",
    tls: ssl.SSLContext | None = None,
) -> Listener:
    return Listener(address, tls=tls, name="lines", connections=factory)


def _port(server: PlaneServer, name: str) -> int:
    address = server.addresses_of(name)[0]
    assert isinstance(address, tuple)
    return address[1]


async def _connect(server: PlaneServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", _port(server, "lines"))


async def test_a_protocol_of_its_own_is_served_beside_http() -> None:
    async with running(Sample().app(), LOOPBACK, _lines(), options=QUICK) as server:
        reader, writer = await _connect(server)
        writer.write(b"hello\n")
        line = await reader.readline()
        answer = await Raw("127.0.0.1", _port(server, "main")).ask(request("POST", "/v1/nothing"))
        writer.close()
        addresses = server.addresses

    assert line == b"HELLO\n"
    assert status_of(answer) == 204
    assert len(addresses) == 1  # Of the app; others are asked for by name.


async def test_its_connections_are_limited_too() -> None:
    options = ServeOptions(drain_grace_s=0, limits=Limits(connections_max=1))
    async with running(Sample().app(), LOOPBACK, _lines(), options=options) as server:
        reader, writer = await _connect(server)
        writer.write(b"first\n")
        assert await reader.readline() == b"FIRST\n"

        second, _ = await _connect(server)
        async with asyncio.timeout(SOON_S):
            with pytest.raises(ConnectionError):
                assert await second.read() == b""
                raise ConnectionError  # An end is as good as a reset.
        writer.close()
        async with asyncio.timeout(SOON_S):
            await reader.read()
            while True:  # The place is free when the server has seen the end.
                third, third_writer = await _connect(server)
                third_writer.write(b"third\n")
                if await _line_or_end(third) == b"THIRD\n":
                    break


async def _line_or_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


@pytest.mark.parametrize(("factory", "last"), [(Lines, b""), (LastWords, b"BYE\n")])
async def test_its_connections_end_with_the_server(factory: Callable[[], Lines], last: bytes) -> None:
    async with running(Sample().app(), LOOPBACK, _lines(factory), options=QUICK) as server:
        reader, writer = await _connect(server)
        writer.write(b"hello\n")
        await reader.readline()

    async with asyncio.timeout(SOON_S):
        assert await reader.read() == last
    writer.close()


async def test_a_connection_that_does_not_end_is_cut_when_the_time_is_over() -> None:
    class Stubborn(Lines):
        def shutdown(self) -> None:
            return

    options = ServeOptions(drain_grace_s=0, shutdown_timeout_s=0.1)
    async with asyncio.timeout(SOON_S):
        async with running(Sample().app(), LOOPBACK, _lines(Stubborn), options=options) as server:
            reader, writer = await _connect(server)
            writer.write(b"hello\n")
            await reader.readline()
        with pytest.raises(ConnectionError):
            assert await reader.read() == b""
            raise ConnectionError
    writer.close()


async def test_tls_is_the_same_for_it_with_the_same_certificates_refused() -> None:
    authority = Authority()
    tls = server_context(parse_bundle(authority.bundle("server"), "server.pem"))
    mine = client_context(parse_bundle(authority.bundle("client"), "client.pem"))
    seen: list[bytes] = []

    def accepts(certificate: bytes) -> bool:
        seen.append(certificate)
        return len(seen) == 1

    options = ServeOptions(drain_grace_s=0, accepts_peer=accepts)
    async with running(Sample().app(), LOOPBACK, _lines(tls=tls), options=options) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(server, "lines"), ssl=mine)
        writer.write(b"hello\n")
        line = await reader.readline()
        refused, refused_writer = await asyncio.open_connection("127.0.0.1", _port(server, "lines"), ssl=mine)
        refused_writer.write(b"hello\n")
        second = await _line_or_end(refused)
        writer.close()

    assert (line, second) == (b"HELLO\n", b"")
    assert len(seen) == 2


def _denies_one_serial(certificate: bytes) -> bool:
    return x509.load_der_x509_certificate(certificate).serial_number != 7


@pytest.mark.parametrize("is_http", [False, True], ids=["lines", "http"])
async def test_a_denylist_denies_no_client_of_a_listener_that_asks_for_no_certificate(is_http: bool) -> None:
    tls = server_context(parse_bundle(Authority().bundle("server"), "server.pem"))
    tls.verify_mode = ssl.CERT_NONE  # As the TLS of its own that a declaration may bring.
    mine = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    mine.check_hostname, mine.verify_mode = False, ssl.CERT_NONE
    listener = replace(LOOPBACK, name="lines", tls=tls) if is_http else _lines(tls=tls)
    options = ServeOptions(drain_grace_s=0, accepts_peer=_denies_one_serial)
    async with running(Sample().app(), listener, options=options) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(server, "lines"), ssl=mine)
        writer.write(request("POST", "/v1/nothing") if is_http else b"hello\n")
        line = await _line_or_end(reader)
        writer.close()

    assert line == (b"HTTP/1.1 204 No Content\r\n" if is_http else b"HELLO\n")


async def test_a_listener_with_some_paths_has_no_others() -> None:
    small = replace(LOOPBACK, name="small", paths=("/version", "/metrics"))
    async with running(Sample().app(), LOOPBACK, small, options=QUICK) as server:
        base = f"http://127.0.0.1:{_port(server, 'small')}"
        async with httpx.AsyncClient(base_url=base) as client:
            version = await client.get("/version")
            metrics = await client.get("/metrics")
            others = [await client.get(path) for path in ("/healthz", "/docs", "/", "/v1/find")]

    assert (version.status_code, metrics.status_code) == (200, 200)
    assert [answer.json() for answer in others] == [
        {"error": "not_found", "detail": "this listener serves /version and /metrics alone"}
    ] * 4


async def test_paths_of_no_protocol_leave_a_listener_the_dialect_of_the_others() -> None:
    small = replace(LOOPBACK, name="small", paths=("/version", "/v1/echo"))
    async with running(Sample().app(), LOOPBACK, small, options=QUICK) as server:
        base = f"http://127.0.0.1:{_port(server, 'small')}"
        async with httpx.AsyncClient(base_url=base) as client:
            echo = await client.post("/v1/echo", json={"key": "a", "amount": 1})
            others = [await client.get(path) for path in ("/healthz", "/", "/v1/find")]

    assert echo.status_code == 200
    assert [(answer.status_code, answer.text) for answer in others] == [(404, "404 page not found\n")] * 3


async def test_every_listener_is_refused_on_an_open_address_but_one_without_secrets() -> None:
    with pytest.raises(ListenError, match="--disable-mtls"):
        PlaneServer(Sample().app(), [LOOPBACK, _lines(address=":6388")])

    PlaneServer(Sample().app(), [LOOPBACK, replace(LOOPBACK, address=":9342", is_public=True)])


async def test_a_listener_that_cannot_open_takes_the_others_with_it() -> None:
    mine = Listener(f"127.0.0.1:{free_port()}")
    async with running(Sample().app(), LOOPBACK, options=QUICK) as first:
        taken = f"127.0.0.1:{_port(first, 'main')}"

        with pytest.raises(ListenError, match=taken):
            await PlaneServer(Sample().app(), [mine, _lines(address=taken)], QUICK).run_until_stopped()

        async with running(Sample().app(), mine, options=QUICK) as second:
            assert second.addresses == [split_address(mine.address)]


async def test_readiness_notes_a_listener_that_was_left_out() -> None:
    async with running(Sample().app(), LOOPBACK, options=QUICK) as first:
        taken = f"127.0.0.1:{_port(first, 'main')}"
        lines = replace(_lines(address=taken), is_optional=True)
        async with running(Sample().app(), LOOPBACK, lines, options=QUICK) as server:
            address = f"http://127.0.0.1:{_port(server, 'main')}/readyz"
            async with httpx.AsyncClient() as client:
                ready = await client.get(address)
                whole = await client.get(f"http://{taken}/readyz")

    assert (ready.status_code, ready.content) == (200, b"")
    assert ready.headers["x-holdfast-listeners"].startswith(f"lines left out: cannot listen on {taken}")
    assert "x-holdfast-listeners" not in whole.headers


async def test_the_server_is_ready_when_all_of_them_are_open() -> None:
    app = Sample().app()
    server = PlaneServer(app, [LOOPBACK, _lines()], QUICK)
    before = await parts_of(app).health.reasons()
    async with running(app, LOOPBACK, _lines(), options=QUICK):
        after = await parts_of(app).health.reasons()

    assert before == {"listeners": "not open yet"}
    assert after == {}
    assert server.addresses == []


def test_settings_say_where_and_whether_a_declared_listener_is() -> None:
    lines = ListenerDeclaration(
        name="lines", address=lambda settings: settings.health_listen, connections=Lines
    )
    app = build_app("sample", listeners=[lines])

    off = listeners_of(app, PlaneSettings.isolated(listen="127.0.0.1:1"))
    on = listeners_of(app, PlaneSettings.isolated(listen="127.0.0.1:1", health_listen="127.0.0.1:2"))

    assert [(listener.name, listener.address) for listener in off] == [("main", "127.0.0.1:1")]
    assert [listener.name for listener in on] == ["main", "health", "lines"]
    assert on[2].connections is Lines
    assert METRICS.is_public and HEALTH.is_public and not lines.is_public
