"""Calls to other nodes over HTTP: rare and small, so httpx serves; each role shows its own certificate."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Final

import httpx

from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.tls import client_context
from holdfast.common.security.trust import find_client_bundle, pem_of, read_trust
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.tracing import outgoing_headers
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable, Role

ANSWER_BYTES_MAX: Final = 1 << 20
_LIMITS: Final = httpx.Limits(max_connections=64, max_keepalive_connections=32, keepalive_expiry=60)


class HttpPeers:
    """The `PeerPort` of a running node."""

    def __init__(self, clients: Mapping[Role, httpx.AsyncClient]) -> None:
        self._clients = clients

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Role = Role.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        try:
            async with asyncio.timeout(timeout_s):  # httpx's own would count each step anew.
                return await self._exchange(self._clients[role], f"{endpoint}{path}", body, headers)
        except TimeoutError as error:
            raise PeerUnreachable(f"no answer within {timeout_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as error:
            raise PeerUnreachable(str(error) or type(error).__name__) from error

    async def _exchange(
        self,
        client: httpx.AsyncClient,
        url: str,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str] | None,
    ) -> PeerAnswer:
        method = "GET" if body is None else "POST"
        sent = [
            *outgoing_headers(),
            *((name.encode(), value.encode()) for name, value in (headers or {}).items()),
        ]
        async with client.stream(method, url, json=body, headers=sent) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > ANSWER_BYTES_MAX:
                    raise PeerUnreachable(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
        return PeerAnswer(response.status_code, _members(bytes(content), response.status_code))


def _members(content: bytes, status: int) -> Mapping[str, object]:
    """Empty when a refusal comes from something that does not speak as a node: its status still counts."""
    try:
        members = json.loads(content)
    except (ValueError, RecursionError):
        members = None
    if isinstance(members, dict):
        return members
    if status == 200:
        raise PeerUnreachable("answered with something that is no JSON object")
    return {}


@asynccontextmanager
async def open_peers(settings: PlaneSettings) -> AsyncIterator[HttpPeers]:
    """With mutual TLS both roles show their certificate; the CAs of the trust directory count as well as their own."""
    async with AsyncExitStack() as stack:
        clients = {
            role: await stack.enter_async_context(
                httpx.AsyncClient(verify=_tls(settings, role), trust_env=False, timeout=None, limits=_LIMITS)
            )
            for role in Role
        }
        yield HttpPeers(clients)


def _tls(settings: PlaneSettings, role: Role) -> ssl.SSLContext:
    if not settings.is_mtls_on:
        return _public_context()
    path = settings.bundle
    if role is Role.CLIENT:  # Where certificates are not checked, the server's own will do.
        path = find_client_bundle(settings.tc_client_bundle, settings.config_dir) or path
    context = client_context(read_bundle(path))
    more = pem_of(read_trust(settings.tc_trust_dir))
    if more:
        context.load_verify_locations(cadata=more.decode("ascii"))
    return context


@cache
def _public_context() -> ssl.SSLContext:
    """Reading all the public authorities takes a while, and both roles trust the same ones."""
    return httpx.create_ssl_context(trust_env=False)
