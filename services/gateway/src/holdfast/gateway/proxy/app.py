"""The gateway alone in its process: the routes of all services, each proxied to another process."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from holdfast.common.express.route import Route
from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.security.principal import Permission
from holdfast.common.serving.app import build_app
from holdfast.common.serving.drain import Drain
from holdfast.common.serving.health import Health
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.upstream.peers import Peers
from holdfast.gateway.admission.backpressure import Backpressure
from holdfast.gateway.composition import declared_parts
from holdfast.gateway.proxy.affinity import Affinity
from holdfast.gateway.proxy.divided_route import DividedRoute
from holdfast.gateway.proxy.give_back import GivingBack
from holdfast.gateway.proxy.proxied_route import ProxiedRoute
from holdfast.gateway.proxy.repetition import Repetition
from holdfast.gateway.proxy.stream_end import StreamEnds
from holdfast.gateway.proxy.unfinished import Unfinished
from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.hosting.store_app import Part, listeners_of
from holdfast.txn.layers import Layers
from holdfast.txn.protocol.access import TcAccess


def create_split_app(settings: GatewaySettings, parts: Sequence[Part[Layers]] = ()) -> FastAPI:
    """`parts` add routes to those of the plane, and ports for HTTP; their layers and other listeners are in other processes."""
    drain = Drain()
    registry = Registry()
    peers = Peers(settings, Role.GATEWAY, registry)
    declared = [*declared_parts(settings), *parts]
    unfinished = Unfinished(drain, registry)
    routers = ProxiedRoutes(settings, peers, drain, unfinished, registry).routers(
        router for part in declared for router in part.routers
    )
    backpressure = None if settings.qrf_disabled else Backpressure(settings, registry)
    if backpressure is not None:
        backpressure.admission.guard(routers)
    health = Health(drain=drain, is_unready_while_draining=settings.readyz_drain)
    peers.add_checks(health)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(peers.running())
            await stack.enter_async_context(unfinished.running())
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
        guard=TcAccess.of(settings).guard(),  # Where TLS ends: the process behind may have none.
        gates=None if backpressure is None else backpressure.admission.gates,
        listeners=[listener for listener in listeners_of(declared) if listener.is_http],
    )
    app.state.peers = peers
    return app


class ProxiedRoutes:
    """What a gateway serves of declared routes; no path is passed on that is not among them."""

    def __init__(
        self,
        settings: GatewaySettings,
        peers: Peers,
        drain: Drain,
        unfinished: Unfinished,
        registry: Registry,
    ) -> None:
        self._namespace_default = settings.namespace_default
        self._peers = peers
        self._drain = drain
        self._unfinished = unfinished
        self._ends = StreamEnds(drain)
        self._given_back = registry.counter(
            "holdfast.gateway.given_back",
            "Answers whose client was gone, by what became of the leases and messages in them.",
            ("service", "outcome"),
        )
        self._repeated = registry.counter(
            "holdfast.gateway.repeated",
            "Calls that end a hold and had to be repeated, by whether a service answered in the end.",
            ("service", "outcome"),
        )

    def routers(self, declared: Iterable[ExpressRouter]) -> list[ExpressRouter]:
        """These routes, proxied to their services."""
        routers: list[ExpressRouter] = []
        for router in declared:
            proxied = ExpressRouter()
            proxied.routes = [self._ends.ended(self._proxied(route).route()) for route in router.routes]
            routers.append(proxied)
        return routers

    def _proxied(self, route: Route) -> ProxiedRoute:
        traits, service = route.traits, route.traits.service
        if service is None or traits.permission is Permission.INTERNAL:
            raise ValueError(f"{route.path}: a gateway serves routes for clients that name their service")
        peers = self._peers
        client, signer = peers.clients[service], peers.signer
        affinity = None if traits.affinity is None else Affinity(traits.affinity, self._namespace_default)
        if traits.divide is not None:
            if affinity is None or route.undo is not None or route.repeat is not None:
                raise ValueError(
                    f"{route.path}: what is divided needs an affinity, and knows no undo or repeat"
                )
            return DividedRoute(route, client, signer, self._drain, affinity, traits.divide)
        giving_back = repetition = None
        if route.undo is not None:
            giving_back = GivingBack(
                route.undo, service.value, peers.upstream(service), self._unfinished, self._given_back
            )
        if route.repeat is not None:
            repetition = Repetition(route.repeat, service.value, self._unfinished, self._repeated)
        return ProxiedRoute(
            route,
            client,
            signer,
            self._drain,
            affinity,
            giving_back=giving_back,
            repetition=repetition,
        )
