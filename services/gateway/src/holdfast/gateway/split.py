"""The gateway alone in its process: the doors of all services, each of them a passage to another process."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from holdfast.common.app import build_app
from holdfast.common.drain import Drain
from holdfast.common.express.router import ExpressRouter
from holdfast.common.health import Health
from holdfast.common.metrics import Registry
from holdfast.common.role import Role
from holdfast.common.upstream.peers import Peers
from holdfast.gateway.backpressure import Backpressure
from holdfast.gateway.passage import Passage
from holdfast.gateway.plane import Plane
from holdfast.gateway.routing import Affinity, service_of
from holdfast.gateway.settings import GatewaySettings


def create_split_app(settings: GatewaySettings) -> FastAPI:
    drain = Drain()
    registry = Registry()
    peers = Peers(settings, Role.GATEWAY, registry)
    routers = _passages(settings, peers, drain)
    backpressure = None if settings.qrf_disabled else Backpressure(settings, registry)
    if backpressure is not None:
        backpressure.admission.document(routers)
    health = Health(drain=drain, is_unready_while_draining=settings.readyz_drain)
    peers.add_checks(health)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(peers.running())
            if backpressure is not None:
                await stack.enter_async_context(backpressure.sampling())
            yield

    app = build_app(
        "gateway",
        express_routers=routers,
        lifespan=lifespan,
        health=health,
        drain=drain,
        registry=registry,
        admit=None if backpressure is None else backpressure.admission.admit,
        leave=None if backpressure is None else backpressure.admission.leave,
    )
    app.state.peers = peers
    return app


def _passages(settings: GatewaySettings, peers: Peers, drain: Drain) -> list[ExpressRouter]:
    """What the plane declares, served elsewhere. Only declared paths are: none below `/internal/` ever is."""
    declared = Plane(settings, Drain(), Registry())  # For its declarations: its handlers never run here.
    routers: list[ExpressRouter] = []
    for router in declared.routers:
        passed_on = ExpressRouter()
        for route in router.routes:
            service = service_of(route.path)
            affinity = Affinity(service, settings.namespace_default)
            passage = Passage(route, peers.clients[service], peers.signer, drain, affinity)
            passed_on.routes.append(passage.route())
        routers.append(passed_on)
    return routers
