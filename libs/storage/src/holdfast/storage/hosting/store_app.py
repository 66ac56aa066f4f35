"""An app over a store: opened before the first request, closed after the last, asked by `/readyz` in between."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol, TypeVar, runtime_checkable

from fastapi import FastAPI

from holdfast.common.express.execution import Gate, Identify
from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.app import build_app, parts_of
from holdfast.common.serving.drain import Drain
from holdfast.common.serving.health import Health
from holdfast.common.serving.listener import ListenerDeclaration
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.upstream.peers import Peers
from holdfast.storage.errors import StorageError
from holdfast.storage.hosting.configured import store_options
from holdfast.storage.hosting.figures import show_clock, show_figures
from holdfast.storage.opening import open_store
from holdfast.storage.port import Store

L = TypeVar("L")
LayersT_contra = TypeVar("LayersT_contra", contravariant=True)


class Part(Protocol[LayersT_contra]):
    """What a service brings into an app: its hot routes, and what it runs while the layers of the store are open."""

    @property
    def routers(self) -> Sequence[ExpressRouter]: ...

    def running(self, layers: LayersT_contra) -> AbstractAsyncContextManager[None]: ...


@runtime_checkable
class ListeningPart(Part[LayersT_contra], Protocol[LayersT_contra]):
    """A part that is also reached by other ways than the app's HTTP."""

    @property
    def listeners(self) -> Sequence[ListenerDeclaration]: ...


def build_store_app(
    service: str,
    settings: PlaneSettings,
    parts: Sequence[Part[L]],
    open_layers: Callable[[Store], AbstractAsyncContextManager[L]],
    *,
    guard: Identify | None,
    routers: Sequence[ExpressRouter] = (),
    drain: Drain | None = None,
    registry: Registry | None = None,
    gates: Mapping[str, Gate] | None = None,
    peers: Peers | None = None,
) -> FastAPI:
    """An app that owns the store of its settings, opens the layers over it and hands them to its parts; they end before
    it closes. `routers` come beside those of the parts.

    `guard` refuses principals that may not use a route, by its permission; None lets all use it. With `peers` it is one
    service of a split plane: it reaches the others, and takes signed calls from them.
    """
    drain = drain or Drain()
    registry = registry or Registry()
    health = Health(drain=drain, is_unready_while_draining=settings.readyz_drain)
    health.add("store", lambda: "not open yet")
    if peers is not None:
        peers.add_checks(health)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(settings.store, store_options(settings)))
            health.add("store", lambda: store_problem(store))
            app.state.store_url = store.url
            show_figures(store, registry)
            show_clock(store.clock, registry)
            health.add("clock", lambda: store.clock.problem)
            health.note("holdfast-clock", store.clock.note)
            hooks = parts_of(app).hooks
            hooks.wall_s = store.clock.now_s
            if store.is_shared:
                hooks.check = store.clock.check
            if peers is not None:
                await stack.enter_async_context(peers.running())
            layers = await stack.enter_async_context(open_layers(store))
            for part in parts:
                await stack.enter_async_context(part.running(layers))
            yield

    app = build_app(
        service,
        express_routers=[*(router for part in parts for router in part.routers), *routers],
        lifespan=lifespan,
        health=health,
        drain=drain,
        registry=registry,
        identify=None if peers is None else peers.identify,
        guard=guard,
        gates=gates,
        listeners=listeners_of(parts),
        has_http_ports=peers is None,  # HTTP of a split plane comes in at its gateway.
    )
    app.state.peers = peers
    return app


def listeners_of(parts: Sequence[Part[L]]) -> list[ListenerDeclaration]:
    return [listener for part in parts if isinstance(part, ListeningPart) for listener in part.listeners]


async def store_problem(store: Store) -> str | None:
    """Why the store can't be worked with now, or None; asks the backend itself."""
    if store.problem is not None:
        return store.problem
    try:
        await store.check()
    except StorageError as error:
        return error.detail
    return None
