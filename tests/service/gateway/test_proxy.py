"""Answers of a service arrive through the gateway as they are; a client that hangs up ends the call behind."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from fastapi import FastAPI

from holdfast.common.express.message import Answer, Request
from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.security.bundle import parse_bundle, read_bundle
from holdfast.common.security.internal_identity import Signer
from holdfast.common.security.principal import Permission, Principal
from holdfast.common.security.tls import client_context, server_context
from holdfast.common.serving.app import build_app
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from tests.infra.gateway import LOOPBACK, identify, url_of, with_identity
from tests.service.common.certificates import Authority, pem
from tests.service.common.sample import Raw, Sample, masked, read_answer, request, status_of
from tests.service.common.streams import Streams
from tests.service.common.test_express_both_ways import CONVERSATIONS
from tests.service.common.test_express_streams import CONVERSATIONS as STREAMS
from tests.service.gateway.sample_gateway import both, gateway_app, raw_of

ID = "X-Correlation-Id: test-1"
ORDER = b'{"key":"orders/1","amount":2}'
QUICK = ServeOptions(drain_grace_s=0)
WAYS = pytest.mark.parametrize(
    ("is_express", "is_gateway_express"),
    [(True, True), (True, False), (False, True)],
    ids=["lane", "gateway by asgi", "service by asgi"],
)


def whole(answer: bytes) -> bytes:
    """An answer with its chunks put together: where a chunk ends does not count."""
    head, _, body = masked(answer).partition(b"\r\n\r\n")
    if b"\r\ntransfer-encoding: chunked" not in head:
        return head + b"\r\n\r\n" + body
    joined = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        joined += rest[:length]
        body = rest[length + 2 :]
    return head + b"\r\n\r\n" + joined


@WAYS
async def test_streams_are_equal_through_the_gateway(is_express: bool, is_gateway_express: bool) -> None:
    ways = both(Streams(), is_express=is_express, is_gateway_express=is_gateway_express)
    async with ways as (direct, gateway):
        for name, (status, conversation) in STREAMS.items():
            expected = await direct.talk(conversation)

            answer = await gateway.talk(conversation)

            assert status_of(answer) == status, name
            assert whole(answer) == whole(expected), name


@WAYS
async def test_answers_are_equal_through_the_gateway(is_express: bool, is_gateway_express: bool) -> None:
    ways = both(Sample(), is_express=is_express, is_gateway_express=is_gateway_express)
    async with ways as (direct, gateway):
        for name, (status, conversation) in CONVERSATIONS.items():
            if b" /plain " in conversation or b"/v1/find" in conversation:
                continue  # No declared route; and one that tells which headers it saw.
            expected = await direct.ask(conversation)

            answer = await gateway.ask(conversation)

            assert status_of(answer) == status, name
            assert masked(answer) == masked(expected), name


async def _seen_headers(raw: Raw, *headers: str) -> list[tuple[str, str]]:
    answer = await raw.ask(request("GET", "/v1/find?key=a%20b&key=c", b"", ID, *headers))
    seen = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (seen["key"], seen["method"]) == ("a b", "GET")
    return [(name, value) for name, value in seen["headers"]]


async def test_a_service_sees_the_headers_of_the_client_and_none_of_its_connection() -> None:
    async with both(Sample()) as (direct, gateway):
        seen = await _seen_headers(
            gateway, "X-Lease-ID: l1", "X-Two: 1", "X-Two: 2", "Connection: keep-alive, X-Mine", "X-Mine: 1"
        )

    names = [name for name, _ in seen]
    assert [pair for pair in seen if pair[0] in ("x-lease-id", "x-two")] == [
        ("x-lease-id", "l1"),
        ("x-two", "1"),
        ("x-two", "2"),
    ]
    assert ("x-correlation-id", "test-1") in seen
    assert ("host", f"127.0.0.1:{direct.port}") in seen
    assert not {"connection", "x-mine"} & set(names)


async def test_forged_internal_headers_do_not_get_through() -> None:
    forged = Signer(b"x" * 32, Role.GATEWAY).sign(
        "GET", "/v1/find?key=a%20b&key=c", b"", Principal.of_certificate(b"certificate")
    )
    async with both(Sample()) as (_, gateway):
        seen = await _seen_headers(
            gateway,
            f"X-Holdfast-Internal: {forged.decode()}",
            "x-holdfast-DEADLINE-ms: 1",
            "X-Holdfast-Other: 1",
        )

    internal = [value for name, value in seen if name.startswith("x-holdfast-")]
    assert len(internal) == 1
    assert internal[0] != forged.decode()


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_a_service_refuses_forged_internal_headers(is_express: bool) -> None:
    forged = Signer(b"x" * 32, Role.GATEWAY).sign("POST", "/v1/echo", ORDER)
    async with both(Sample(), is_express=is_express) as (direct, _):
        answer = await direct.ask(
            request("POST", "/v1/echo", ORDER, f"X-Holdfast-Internal: {forged.decode()}")
        )

    assert status_of(answer) == 403
    assert b'"error":"internal_forbidden"' in answer


async def _secret(request: Request, body: None) -> Answer:
    return Answer(200, b"for processes only")


@pytest.mark.parametrize("path", ["/internal/v1/secret", "//internal/v1/secret", "/%69nternal/v1/secret"])
async def test_internal_paths_are_not_there_for_clients_of_the_gateway(path: str) -> None:
    router = ExpressRouter(permission=Permission.INTERNAL)
    router.add("/internal/v1/secret", _secret)
    service = build_app("sample", express_routers=[router], identify=identify())
    async with running(service, LOOPBACK, options=QUICK) as behind:
        front_app, _ = gateway_app(Sample(), url_of(behind))
        async with running(front_app, LOOPBACK, options=QUICK) as front:
            through = await raw_of(front).ask(request("POST", path))
            direct = await raw_of(behind).ask(request("POST", "/internal/v1/secret"))

    assert status_of(through) == 404
    assert status_of(direct) == 403


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_the_certificate_of_the_client_reaches_the_service(is_express: bool) -> None:
    authority = Authority()
    certificate, key = authority.issue("worker-1")
    bundle = parse_bundle(pem(key) + pem(certificate) + pem(authority.certificate), "test.pem")
    tls = server_context(parse_bundle(authority.bundle("server"), "test.pem"))
    sample = Sample()
    listener = Listener("127.0.0.1:0", tls=tls)
    async with both(sample, is_express=is_express, listener=listener) as (_, gateway):
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port, ssl=client_context(bundle))
        writer.write(request("POST", "/v1/echo", ORDER))
        assert status_of(await read_answer(reader)) == 200
        writer.close()

    assert sample.certificates == [certificate.public_bytes(Encoding.DER)]


@WAYS
async def test_a_client_that_hangs_up_cancels_the_call_behind(
    is_express: bool, is_gateway_express: bool
) -> None:
    sample = Sample()
    ways = both(sample, is_express=is_express, is_gateway_express=is_gateway_express)
    async with ways as (_, gateway):
        _, writer = await gateway.connect()
        writer.write(request("POST", "/v1/wait"))
        await sample.entered.wait()

        writer.close()

        async with asyncio.timeout(20):
            await sample.cancelled.wait()


@WAYS
async def test_a_client_that_hangs_up_in_the_middle_of_a_download_ends_it_behind(
    is_express: bool, is_gateway_express: bool
) -> None:
    streams = Streams()
    ways = both(streams, is_express=is_express, is_gateway_express=is_gateway_express)
    async with ways as (_, gateway):
        reader, writer = await gateway.connect()
        writer.write(request("GET", "/v1/download?count=100000&size=50000&unknown=1"))
        await reader.readuntil(b"\r\n\r\n")

        writer.close()

        async with asyncio.timeout(20):
            await streams.closed.wait()
    assert streams.produced < 100_000


@WAYS
async def test_a_client_that_hangs_up_in_the_middle_of_an_upload_ends_it_behind(
    is_express: bool, is_gateway_express: bool
) -> None:
    streams = Streams()
    ways = both(streams, is_express=is_express, is_gateway_express=is_gateway_express)
    async with ways as (_, gateway):
        _, writer = await gateway.connect()
        writer.write(
            b"POST /v1/upload HTTP/1.1\r\nHost: t\r\nContent-Length: 200000\r\n\r\n" + b"x" * 100_000
        )
        await streams.got_piece.wait()

        writer.close()

        async with asyncio.timeout(20):
            await streams.cancelled.wait()


async def test_a_download_that_is_not_read_is_held_back_all_the_way() -> None:
    streams = Streams()
    async with both(streams) as (_, gateway):
        reader, writer = await gateway.connect()
        writer.write(request("GET", "/v1/download?count=100000&size=50000&unknown=1"))
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while before != streams.produced:
            before = streams.produced
            await _turns()
        writer.close()
        async with asyncio.timeout(20):
            await streams.closed.wait()

    assert streams.produced * 50_000 < 50_000_000  # Sockets of the kernel hold a part of it.


async def _turns() -> None:
    """Let everything happen that can: other connections are served in these turns."""
    for _ in range(200):
        await asyncio.sleep(0.001)


async def test_a_service_that_dies_in_the_middle_of_an_answer_cuts_the_answer_off() -> None:
    async with both(Streams()) as (_, gateway):
        reader, writer = await gateway.connect()
        writer.write(request("GET", "/v1/download?count=5&unknown=1&end=broken"))

        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_a_service_that_is_gone_is_told_with_a_code_and_works_again_when_it_is_back() -> None:
    sample = Sample()
    async with running(_service_app(sample), LOOPBACK, options=QUICK) as behind:
        port = raw_of(behind).port
        app, peers = gateway_app(sample, url_of(behind))
    async with running(app, LOOPBACK, options=QUICK) as front:
        gateway = raw_of(front)
        refused = await gateway.ask(request("POST", "/v1/echo", ORDER))
        problem = await peers.clients[Role.STATE].problem()
        async with running(_service_app(sample), Listener(f"127.0.0.1:{port}"), options=QUICK):
            for client in peers.clients.values():
                await client.peers[0].probe("/readyz")
            answered = await gateway.ask(request("POST", "/v1/echo", ORDER))

    assert status_of(refused) == 503
    assert b'"error":"upstream_unavailable"' in refused
    assert re.search(rb"\r\nretry-after: \d+\r\n", refused)
    assert problem is not None
    assert f"http://127.0.0.1:{port}" in problem
    assert status_of(answered) == 200


async def test_a_service_that_is_about_to_stop_says_so_through_the_gateway() -> None:
    sample = Sample()
    async with running(_service_app(sample), LOOPBACK, options=QUICK) as behind:
        app, _ = gateway_app(sample, url_of(behind))
        async with running(app, LOOPBACK, options=QUICK) as front:
            before = await raw_of(front).ask(request("POST", "/v1/echo", ORDER))
            behind.lane.begin_drain()
            during = await raw_of(front).ask(request("POST", "/v1/echo", ORDER))
            front.lane.begin_drain()
            app.state.parts.drain.is_draining = True
            both_of_them = await raw_of(front).ask(request("POST", "/v1/echo", ORDER))

    assert b"shutdown-imminent" not in before
    assert during.count(b"\r\nshutdown-imminent: true\r\n") == 1
    assert both_of_them.count(b"\r\nshutdown-imminent: true\r\n") == 1


def _service_app(sample: Sample) -> FastAPI:
    return with_identity(sample.app())


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_over_tls_a_service_sees_the_client_and_not_the_gateway(
    is_express: bool, tmp_path: Path
) -> None:
    authority = Authority()
    certificate, key = authority.issue("worker-1")
    client = client_context(
        parse_bundle(pem(key) + pem(certificate) + pem(authority.certificate), "test.pem")
    )
    bundle_path = tmp_path / "server.pem"
    bundle_path.write_bytes(authority.bundle("server"))
    listener = Listener("127.0.0.1:0", tls=server_context(read_bundle(bundle_path)))
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    sample = Sample()
    async with running(_service_app(sample), listener, options=options) as behind:
        url = f"https://127.0.0.1:{raw_of(behind).port}"
        app, _ = gateway_app(sample, url, bundle=bundle_path)
        async with running(app, listener, options=QUICK) as front:
            port = raw_of(front).port
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
                writer.write(request("POST", "/v1/echo", ORDER))
                assert status_of(await read_answer(reader)) == 200
                writer.close()

    assert sample.certificates == [certificate.public_bytes(Encoding.DER)] * 2
