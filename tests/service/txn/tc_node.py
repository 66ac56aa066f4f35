"""Nodes of a cluster over mutual TLS in one process, each with a store and certificates of its own."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast.common.security.bundle import parse_bundle
from holdfast.common.security.coordinator_peers import confine_coordinators
from holdfast.common.security.tls import client_context, server_context
from holdfast.common.security.trust import pem_of, read_trust
from holdfast.common.serving.app import parts_of
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.program import free_port
from tests.service.common.certificates import Authority

CLIENT_USE = (ExtendedKeyUsageOID.CLIENT_AUTH,)
WITHIN_S = 30


class TcNode:
    """One node: its URL, and a client for each certificate that may call it."""

    def __init__(self, url: str, clients: Mapping[str, httpx.AsyncClient]) -> None:
        self.url = url
        self._clients = clients

    async def post(
        self, path: str, body: object = None, *, as_: str = "server", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        if isinstance(body, bytes):
            return await self._clients[as_].post(path, content=body, headers=headers)
        return await self._clients[as_].post(path, json=body, headers=headers)

    async def get(self, path: str, *, as_: str = "client") -> httpx.Response:
        return await self._clients[as_].get(path)

    async def members(self) -> list[str]:
        return list((await self.get("/v1/tc/cluster/list")).json()["endpoints"])

    async def leader(self) -> dict[str, Any]:
        return dict((await self.get("/v1/tc/leader")).json())

    async def term(self) -> int:
        """Of the leader it follows; 0 if it follows none."""
        leader = await self.leader()
        return int(leader["term"]) if "leader_id" in leader else 0


class Certificates:
    """Bundles of one island, in files as its server wants them and as contexts for its callers."""

    def __init__(self, authority: Authority, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.identity = f"id-{name}"
        bundles = {
            "server": authority.bundle(name, f"spiffe://lockd/server/{self.identity}"),
            "nameless": authority.bundle(name),
            "client": authority.bundle(name, f"spiffe://lockd/tc/{name}", CLIENT_USE),
        }
        self.paths = {kind: folder / f"{kind}.pem" for kind in bundles}
        for kind, content in bundles.items():
            self.paths[kind].write_bytes(content)
        parsed = {kind: parse_bundle(content, kind) for kind, content in bundles.items()}
        self.contexts: dict[str, ssl.SSLContext] = {
            kind: client_context(bundle) for kind, bundle in parsed.items()
        }
        self.bundle = parsed["server"]


@asynccontextmanager
async def tc_node(
    certificates: Certificates, folder: Path, *, port: int = 0, is_express: bool = True, **flags: Any
) -> AsyncIterator[TcNode]:
    """A plane that listens with these certificates; with `port` it is a node of a cluster."""
    number = port or free_port()
    url = f"https://127.0.0.1:{number}"
    chosen: dict[str, Any] = {
        "tc_default_ca_allowed": True,
        "tc_leader_ttl_s": "1s",
        "store": "mem://",
        **flags,
    }
    chosen |= {"self_endpoint": url} if port else {}
    settings = GatewaySettings.isolated(
        bundle=certificates.paths["server"],
        tc_client_bundle=certificates.paths["client"],
        config_dir=folder,
        storage_encryption_disabled=True,
        **chosen,
    )
    app = create_app(settings)
    confine_coordinators(parts_of(app).hooks, settings)
    other_islands = pem_of(read_trust(settings.tc_trust_dir))
    tls = server_context(certificates.bundle, more_client_ca=other_islands)
    listener = Listener(f"127.0.0.1:{number}", tls=tls)
    async with AsyncExitStack() as stack:
        options = ServeOptions(is_express=is_express, drain_grace_s=0, shutdown_timeout_s=5)
        await stack.enter_async_context(running(app, listener, options=options))
        clients = {
            kind: await stack.enter_async_context(
                httpx.AsyncClient(base_url=url, verify=context, trust_env=False, timeout=20)
            )
            for kind, context in certificates.contexts.items()
        }
        yield TcNode(url, clients)


async def until(condition: Callable[[], Any], *, within_s: float = WITHIN_S) -> None:
    """Ask again until it holds; for what another node does in its own time."""
    with anyio.fail_after(within_s):
        while not await condition():  # noqa: ASYNC110 - another node tells no caller when it is done
            await anyio.sleep(0.05)
