"""A refusal reaches a client that is still sending: the rest of its body is taken for a while before the connection ends."""

import asyncio

import pytest

from tests.service.common.sample import BODY_LIMIT_BYTES, Sample, request, serving, status_of

BOTH_WAYS = pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
BODY = b"x" * (4 << 20)
"""More than the buffers of a loopback connection hold, so that the client is stuck until the server reads."""


@BOTH_WAYS
@pytest.mark.parametrize("headers", [[], ["Connection: close"]], ids=["stays", "closes"])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/nowhere", 404),
        ("POST", "/v1/nowhere", 404),
        ("POST", "/plain", 405),
        ("DELETE", "/v1/raw", 405),
        ("POST", "/v1/raw", 413),
        ("POST", "/v1/small", 413),
    ],
)
async def test_a_refusal_is_received_by_who_sends_all_of_its_body_first(
    is_express: bool, headers: list[str], method: str, path: str, status: int
) -> None:
    assert len(BODY) > BODY_LIMIT_BYTES
    async with serving(Sample(), is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request(method, path, BODY, f"Content-Length: {len(BODY)}", *headers, has_length=False))
        async with asyncio.timeout(20):
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert status_of(head) == status


@BOTH_WAYS
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_refusal_is_received_by_an_old_client_too(is_express: bool, version: str) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        asked = request("POST", "/nowhere", BODY, "Connection: close", version=version)
        answer = await raw.talk(*(asked[at : at + 65_536] for at in range(0, len(asked), 65_536)))

    assert status_of(answer) == 404
