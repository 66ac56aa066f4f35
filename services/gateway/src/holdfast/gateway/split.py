"""The gateway alone in its process: the doors of all services, each of them a passage to another process."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from holdfast.common.app import build_app
from holdfast.common.drain import Drain
from holdfast.common.express.route import INTERNAL_PREFIX
from holdfast.common.express.router import ExpressRouter
from holdfast.common.health import Health
from holdfast.common.metrics import Registry
from holdfast.common.role import Role
from holdfast.common.upstream.peers import Peers
from holdfast.gateway.backpressure import Backpressure
from holdfast.gateway.passage import Passage
from holdfast.gateway.passage_end import PassageEnds
from holdfast.gateway.plane import Plane
from holdfast.gateway.routing import Affinity, service_of
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.tc_gate import tc_gate


def create_split_app(settings: GatewaySettings) -> FastAPI:
    drain = Drain()
    registry = Registry()
    peers = Peers(settings, Role.GATEWAY, registry)
    declared = Plane(settings, Drain(), Registry()).routers  # Its handlers never run here.
    routers = passages(declared, peers, drain, namespace_default=settings.namespace_default)
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
        identify=tc_gate(settings),
        admit=None if backpressure is None else backpressure.admission.admit,
        leave=None if backpressure is None else backpressure.admission.leave,
    )
    app.state.peers = peers
    return app


def passages(
    declared: Iterable[ExpressRouter], peers: Peers, drain: Drain, *, namespace_default: str
) -> list[ExpressRouter]:
    """These routes, served elsewhere; no path is passed on that is not among them."""
    routers: list[ExpressRouter] = []
    ends = PassageEnds(drain)
    for router in declared:
        passed_on = ExpressRouter()
        for route in router.routes:
            assert not route.path.startswith(INTERNAL_PREFIX), f"{route.path} is not for clients"
            service = service_of(route.path)
            affinity = Affinity(service, namespace_default)
            passage = Passage(route, peers.clients[service], peers.signer, drain, affinity)
            passed_on.routes.append(ends.ended(passage.route()))
        routers.append(passed_on)
    return routers
