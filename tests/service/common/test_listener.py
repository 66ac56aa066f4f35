"""Where a server listens: TLS with client certificates, unix sockets, and what is refused."""

import asyncio
import socket
import ssl
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from holdfast.common.security.bundle import InvalidBundle, parse_bundle
from holdfast.common.security.tls import client_context, server_context
from holdfast.common.serving.listener import Listener, ListenError, ListenProtocol, open_sockets
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from tests.service.common.certificates import Authority, pem
from tests.service.common.sample import Raw, Sample, read_answer, request, status_of

ORDER = b'{"key":"orders/1","amount":2}'
QUICK = ServeOptions(drain_grace_s=0)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def _port(server: PlaneServer) -> int:
    address = server.addresses[0]
    assert isinstance(address, tuple)
    return address[1]


def _tls_listener(authority: Authority) -> Listener:
    return Listener("127.0.0.1:0", tls=server_context(parse_bundle(authority.bundle("server"), "test.pem")))


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_the_peer_certificate_reaches_the_handler(authority: Authority, is_express: bool) -> None:
    sample = Sample()
    certificate, key = authority.issue("worker-1")
    bundle = parse_bundle(pem(key) + pem(certificate) + pem(authority.certificate), "test.pem")
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with running(sample.app(), _tls_listener(authority), options=options) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(server), ssl=client_context(bundle))
        for _ in range(2):
            writer.write(request("POST", "/v1/echo", ORDER))
            assert status_of(await read_answer(reader)) == 200
        writer.close()

    assert sample.certificates == [certificate.public_bytes(Encoding.DER)] * 2


async def test_a_client_without_a_certificate_gets_nothing(authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=pem(authority.certificate).decode())
    async with running(Sample().app(), _tls_listener(authority), options=QUICK) as server:
        with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection("127.0.0.1", _port(server), ssl=context)
            writer.write(request("POST", "/v1/echo", ORDER))
            await read_answer(reader)


async def test_a_client_of_another_authority_gets_nothing(authority: Authority) -> None:
    certificate, key = Authority().issue("stranger")
    bundle = parse_bundle(pem(authority.certificate) + pem(certificate) + pem(key), "test.pem")
    async with running(Sample().app(), _tls_listener(authority), options=QUICK) as server:
        with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", _port(server), ssl=client_context(bundle)
            )
            writer.write(request("POST", "/v1/echo", ORDER))
            await read_answer(reader)


async def test_a_peer_that_is_not_accepted_is_dropped(authority: Authority) -> None:
    sample = Sample()
    bundle = parse_bundle(authority.bundle("revoked"), "test.pem")
    options = ServeOptions(drain_grace_s=0, accepts_peer=lambda certificate: False)
    async with running(sample.app(), _tls_listener(authority), options=options) as server:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", _port(server), ssl=client_context(bundle)
            )
            writer.write(request("POST", "/v1/echo", ORDER))
            await read_answer(reader)

    assert sample.certificates == []


async def test_plain_http_on_a_tls_port_ends_at_once(authority: Authority) -> None:
    async with running(Sample().app(), _tls_listener(authority), options=QUICK) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(server))
        writer.write(request("POST", "/v1/echo", ORDER))
        try:
            said = await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            said = b""
        writer.close()

    assert b"200" not in said


async def test_a_unix_socket_serves_and_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "plane.sock"
    async with running(Sample().app(), Listener(str(path), "unix"), options=QUICK):
        mode = stat.S_IMODE(path.stat().st_mode)
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(request("POST", "/v1/echo", ORDER))
        answer = await read_answer(reader)
        writer.close()

    assert mode == 0o660
    assert status_of(answer) == 200
    assert not path.exists()


async def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "plane.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))

    async with running(Sample().app(), Listener(str(path), "unix"), options=QUICK):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(request("GET", "/healthz"))
        assert status_of(await read_answer(reader)) == 200
        writer.close()


async def test_the_socket_of_a_running_server_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "plane.sock"
    async with running(Sample().app(), Listener(str(path), "unix"), options=QUICK):
        with pytest.raises(ListenError, match="running"):
            async with running(Sample().app(), Listener(str(path), "unix"), options=QUICK):
                pass

        assert path.exists()


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(ListenError, match="no socket"):
        async with running(Sample().app(), Listener(str(path), "unix"), options=QUICK):
            pass

    assert path.read_text() == "mine"


async def test_a_taken_port_is_named() -> None:
    async with running(Sample().app(), Listener("127.0.0.1:0"), options=QUICK) as server:
        taken = f"127.0.0.1:{_port(server)}"

        with pytest.raises(ListenError, match=taken):
            async with running(Sample().app(), Listener(taken), options=QUICK):
                pass


@pytest.mark.parametrize("address", [":9341", "0.0.0.0:9341", "[::]:9341", "192.0.2.1:80"])
async def test_an_open_address_without_tls_is_refused(address: str) -> None:
    with pytest.raises(ListenError, match="--disable-mtls"):
        PlaneServer(Sample().app(), [Listener(address)])

    PlaneServer(Sample().app(), [Listener(address)], ServeOptions(disable_mtls=True))


@pytest.mark.parametrize("address", ["nine", "host:", "host:99999", "::1:80", "host:-1"])
async def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(ListenError, match="no listen address"):
        PlaneServer(Sample().app(), [Listener(address)])


async def test_several_listeners_serve_one_app(tmp_path: Path) -> None:
    path = tmp_path / "plane.sock"
    listeners = (Listener("127.0.0.1:0", "tcp4"), Listener(str(path), "unix"))
    async with running(Sample().app(), *listeners, options=QUICK) as server:
        by_tcp = await Raw("127.0.0.1", _port(server)).ask(request("POST", "/v1/echo", ORDER))
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(request("POST", "/v1/echo", ORDER))
        by_socket = await read_answer(reader)
        writer.close()

    assert status_of(by_tcp) == status_of(by_socket) == 200


def test_tls_is_refused_with_a_bundle_that_lacks_a_part(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    parts = pem(authority.certificate), pem(certificate), pem(key)

    for broken, told in (
        (parts[0] + parts[2], "no leaf certificate"),
        (parts[1] + parts[2], "no CA certificate"),
        (parts[0] + parts[1], "no private key"),
    ):
        for make_context in (server_context, client_context):
            with pytest.raises(InvalidBundle, match=told):
                make_context(parse_bundle(broken, "broken.pem"))


@pytest.mark.parametrize(
    ("protocol", "of_the_other"), [("tcp4", "[::1]:0"), ("tcp6", "127.0.0.1:0")], ids=["tcp4", "tcp6"]
)
def test_a_listener_of_one_family_takes_no_address_of_the_other(
    protocol: ListenProtocol, of_the_other: str
) -> None:
    with pytest.raises(ListenError):
        open_sockets(Listener(of_the_other, protocol))


def test_all_addresses_of_one_family_are_of_that_family() -> None:
    opened = open_sockets(Listener(":0", "tcp4"))
    families = {bound.family for bound in opened}
    for bound in opened:
        bound.close()

    assert families == {socket.AF_INET}


def test_a_client_whose_machine_is_gone_is_found() -> None:
    (bound,) = open_sockets(Listener("127.0.0.1:0"))
    with bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()):
            accepted, _ = bound.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
