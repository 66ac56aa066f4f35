"""A gateway in front of planes: every service of the split shape is one of them, as a replica or for all roles."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from holdfast.common.express.execution import Identify
from holdfast.common.express.limits import DEFAULT_LIMITS, Limits
from holdfast.common.role import SERVICES, Role
from holdfast.common.security.internal_identity import Verifier, identify_with, internal_keys
from holdfast.common.serving.app import parts_of
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings

SECRET: Final = "a secret for the tests alone"
LOOPBACK: Final = Listener("127.0.0.1:0")


def url_of(server: PlaneServer) -> str:
    address = server.addresses[0]
    assert isinstance(address, tuple)
    return f"http://127.0.0.1:{address[1]}"


def gateway_settings(urls: Sequence[str], **settings: object) -> GatewaySettings:
    """All services are behind these URLs."""
    peers = {f"peer_{service}": ",".join(urls) for service in SERVICES}
    return GatewaySettings.isolated(internal_secret=SECRET, **{**peers, **settings})


def identify() -> Identify:
    """Reads the signatures of the gateway."""
    return identify_with(Verifier(internal_keys(GatewaySettings.isolated(internal_secret=SECRET))))


def with_identity(app: FastAPI) -> FastAPI:
    """Let an app that knows nothing of a split plane be a service of one."""
    parts_of(app).hooks.identify = identify()
    return app


@asynccontextmanager
async def gateway_before(
    *urls: str,
    is_express: bool = True,
    listener: Listener = LOOPBACK,
    limits: Limits = DEFAULT_LIMITS,
    **settings: object,
) -> AsyncIterator[PlaneServer]:
    """A gateway that has found all of its peers ready."""
    app = create_app(gateway_settings(urls, **settings), Role.GATEWAY)
    options = ServeOptions(is_express=is_express, limits=limits, drain_grace_s=0)
    async with running(app, listener, options=options) as server:
        for client in app.state.peers.clients.values():
            for peer in client.peers:
                await peer.probe("/readyz")
        yield server
