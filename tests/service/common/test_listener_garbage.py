"""Garbage on the listeners other than plain TCP: it ends its own connection and nothing else."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.common.security.bundle import parse_bundle
from holdfast.common.security.tls import client_context, server_context
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from tests.service.common.certificates import Authority
from tests.service.common.sample import Sample, read_answer, request, status_of

ORDER = b'{"key":"orders/1","amount":2}'
QUICK = ServeOptions(drain_grace_s=0)
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(190))

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _garbage() -> list[bytes]:
    source = random.Random(7)
    noise = [source.randbytes(source.randrange(1, 2000)) for _ in range(60)]
    hellos = [CLIENT_HELLO[: source.randrange(1, len(CLIENT_HELLO))] for _ in range(30)]
    alerts = [b"\x15\x03\x03\x00\x02\x02\x28", b"\x17\x03\x03\xff\xff" + bytes(100), b"\x00" * 1000, b""]
    lines = [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 500,
        b"POST /v1/echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ]
    return noise + hellos + alerts + lines


async def _throw(garbage: bytes, connect: Callable[[], Awaitable[Streams]]) -> None:
    """Send it, say that nothing more comes, and wait until the server has had enough of it."""
    try:
        reader, writer = await connect()
        writer.write(garbage)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 30)
        writer.close()
    except ConnectionError:
        return  # Also a way to say no.


async def _throw_all(connect: Callable[[], Awaitable[Streams]]) -> None:
    for garbage in _garbage():
        await _throw(garbage, connect)


async def test_a_tls_listener_serves_on_after_any_garbage(capfd: pytest.CaptureFixture[str]) -> None:
    authority = Authority()
    tls = server_context(parse_bundle(authority.bundle("server"), "test.pem"))
    client = client_context(parse_bundle(authority.bundle("client"), "test.pem"))
    async with running(Sample().app(), Listener("127.0.0.1:0", tls=tls), options=QUICK) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        host, port = address

        await _throw_all(lambda: asyncio.open_connection(host, port))
        reader, writer = await asyncio.open_connection(host, port, ssl=client)
        writer.write(request("POST", "/v1/echo", ORDER))
        answer = await read_answer(reader)
        writer.close()

    assert status_of(answer) == 200
    assert "Traceback" not in capfd.readouterr().err


async def test_a_unix_socket_serves_on_after_any_garbage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "plane.sock")
    async with running(Sample().app(), Listener(path, "unix"), options=QUICK):
        await _throw_all(lambda: asyncio.open_unix_connection(path))
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(request("POST", "/v1/echo", ORDER))
        answer = await read_answer(reader)
        writer.close()

    assert status_of(answer) == 200
    assert "Traceback" not in capfd.readouterr().err
