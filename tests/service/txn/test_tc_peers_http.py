"""Calls to other nodes over HTTP: answers, refusals, and every way to get neither."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from holdfast.common.express.message import Request
from holdfast.common.telemetry.tracing import Tracer, current_span
from holdfast.txn.cluster.peers.http import ANSWER_BYTES_MAX, HttpPeers
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable, Role
from tests.infra.program import free_port


@asynccontextmanager
async def node_that_sends(*pieces: bytes, is_open: bool = False) -> AsyncIterator[str]:
    """A node that answers every request with these bytes, and then hangs up or not."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # On a busy machine a client that gives up soon may be gone before it has sent its request.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if is_open:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def peers() -> AsyncIterator[HttpPeers]:
    async with httpx.AsyncClient(trust_env=False, timeout=None) as client:
        yield HttpPeers(dict.fromkeys(Role, client))


def answer(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        status.encode(),
        len(body),
        body,
    )


async def test_an_answer_is_read_whatever_its_status(peers: HttpPeers) -> None:
    async with node_that_sends(answer("409 Conflict", b'{"error":"tc_lease_active","term":3}')) as url:
        refused = await peers.call(url, "/v1/tc/lease/renew", {}, timeout_s=5)

    assert refused == PeerAnswer(409, {"error": "tc_lease_active", "term": 3})
    assert (refused.text("error"), refused.number("term"), refused.texts("error")) == (
        "tc_lease_active",
        3,
        [],
    )


async def test_a_call_made_for_a_request_belongs_to_its_trace(peers: HttpPeers) -> None:
    sent = asyncio.Queue[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer("200 OK", b"{}"))
        writer.close()

    parent = (b"traceparent", b"00-%032x-%016x-01" % (7, 8))
    request = Request("POST", "/v1/txn/decide", b"", [parent, (b"baggage", b"user=1")], b"", None, None, "id")
    span = Tracer(1, lambda span: None).begin(request, "/v1/txn/decide")
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await peers.call(url, "/v1/txn/decide", {}, timeout_s=5, headers={"X-Some": "thing"})
    current_span.set(None)

    lines = (await sent.get()).splitlines()
    assert b"traceparent: 00-%032x-%016x-01" % (7, span.span_id) in lines
    assert {b"baggage: user=1", b"X-Some: thing"} <= set(lines)


async def test_a_refusal_of_a_stranger_keeps_its_status(peers: HttpPeers) -> None:
    async with node_that_sends(answer("502 Bad Gateway", b"<html>")) as url:
        assert await peers.call(url, "/", timeout_s=5) == PeerAnswer(502, {})


@pytest.mark.parametrize(
    "pieces",
    [
        (b"nonsense\r\n\r\n",),
        (b"",),
        (answer("200 OK", b"[]"),),
        (answer("200 OK", b"no json"),),
        (answer("200 OK", b"[" * 200_000),),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",),
        (answer("200 OK", b" " * (ANSWER_BYTES_MAX + 1)),),
    ],
    ids=["no-http", "nothing", "list", "text", "deep", "cut", "large"],
)
async def test_what_is_no_answer_of_a_node_is_none(peers: HttpPeers, pieces: tuple[bytes, ...]) -> None:
    async with node_that_sends(*pieces) as url:
        with pytest.raises(PeerUnreachable):
            await peers.call(url, "/v1/tc/leader", timeout_s=20)


async def test_a_node_that_never_answers_is_given_up(peers: HttpPeers) -> None:
    async with node_that_sends(is_open=True) as url:
        with pytest.raises(PeerUnreachable, match=r"no answer within 0\.05 s"):
            await peers.call(url, "/v1/tc/leader", timeout_s=0.05)


async def test_a_node_that_is_not_there_is_unreachable(peers: HttpPeers) -> None:
    for url in (f"http://127.0.0.1:{free_port()}", "http://[", "ftp://a"):
        with pytest.raises(PeerUnreachable):
            await peers.call(url, "/v1/tc/leader", timeout_s=5)
