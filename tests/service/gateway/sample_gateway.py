"""The sample app of the express lane behind a gateway: whatever it answers has to arrive as it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.role import Role
from holdfast.common.serving.app import build_app
from holdfast.common.serving.drain import Drain
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.upstream.limits import DEFAULT_UPSTREAM_LIMITS, UpstreamLimits
from holdfast.common.upstream.peers import Peers
from holdfast.gateway.proxy.app import ProxiedRoutes
from holdfast.gateway.proxy.unfinished import Unfinished
from tests.infra.gateway import LOOPBACK, gateway_settings, url_of, with_identity
from tests.service.common.sample import Raw, Sample


def gateway_app(
    sample: Sample, *urls: str, limits: UpstreamLimits = DEFAULT_UPSTREAM_LIMITS, **settings: object
) -> tuple[FastAPI, Peers]:
    drain, registry = Drain(), Registry()
    plane = gateway_settings(urls, **settings)
    peers = Peers(plane, Role.GATEWAY, registry, limits=limits)
    unfinished = Unfinished(drain, registry)
    routers = ProxiedRoutes(plane, peers, drain, unfinished, registry).routers([sample.router()])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with peers.running(), unfinished.running():
            yield

    return build_app(
        "sample", express_routers=routers, lifespan=lifespan, drain=drain, registry=registry
    ), peers


@asynccontextmanager
async def both(
    sample: Sample,
    *,
    is_express: bool = True,
    is_gateway_express: bool = True,
    listener: Listener = LOOPBACK,
    limits: UpstreamLimits = DEFAULT_UPSTREAM_LIMITS,
) -> AsyncIterator[tuple[Raw, Raw]]:
    """The sample directly, and through a gateway."""
    service = with_identity(sample.app())
    async with running(service, LOOPBACK, options=_options(is_express)) as behind:
        app, _ = gateway_app(sample, url_of(behind), limits=limits)
        async with running(app, listener, options=_options(is_gateway_express)) as front:
            yield raw_of(behind), raw_of(front)


def _options(is_express: bool) -> ServeOptions:
    return ServeOptions(is_express=is_express, drain_grace_s=0)


def raw_of(server: PlaneServer) -> Raw:
    address = server.addresses[0]
    assert isinstance(address, tuple)
    return Raw(*address)
