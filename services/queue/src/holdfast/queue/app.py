"""Queues alone in their process, over the store that they share with the other services."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from fastapi import FastAPI

from holdfast.common.clock import SteadyClock
from holdfast.common.drain import Drain
from holdfast.common.express.router import ExpressRouter
from holdfast.common.metrics import Registry
from holdfast.common.role import Role
from holdfast.common.upstream.peers import Peers
from holdfast.queue.bonds import Neighbours
from holdfast.queue.brought import BroughtDecisions
from holdfast.queue.doors import QueueDoors
from holdfast.queue.limits import limits_of
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.service import QueueService
from holdfast.queue.settings import QueueSettings
from holdfast.queue.stateless import StatelessNeighbour
from holdfast.queue.withdrawal import GiveBackRoutes
from holdfast.storage.hosting import build_store_app
from holdfast.storage.port import Store
from holdfast.storage.remote_decision import RemoteDecider
from holdfast.storage.resource import Leaser, ResourceManager, Sidecars
from holdfast.storage.resource_routes import ResourceRoutes


class StateKeepers(NamedTuple):
    """Who writes the leases and documents of messages with state, in the commits of the queue."""

    leaser: Leaser
    sidecars: Sidecars
    managers: Sequence[ResourceManager]


OpenKeepers = Callable[[Store, RemoteDecider, SteadyClock], AbstractAsyncContextManager[StateKeepers]]


@asynccontextmanager
async def no_keepers(store: Store, decider: RemoteDecider, clock: SteadyClock) -> AsyncIterator[StateKeepers]:
    """Without them, deliveries with state are refused."""
    nobody = StatelessNeighbour()
    yield StateKeepers(nobody, nobody, ())


class QueuePart:
    """What queues bring into their app."""

    def __init__(
        self,
        settings: QueueSettings,
        drain: Drain,
        registry: Registry,
        peers: Peers,
        open_keepers: OpenKeepers,
    ) -> None:
        self._settings = settings
        self._peers = peers
        self._open_keepers = open_keepers
        self._doors = QueueDoors(settings, drain, QueueMetrics(registry))
        self._resource = ResourceRoutes()
        self._give_back = GiveBackRoutes()

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return *self._doors.routers, self._resource.router, self._give_back.router

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncIterator[None]:
        clock = store.clock
        decider = RemoteDecider(
            self._peers.upstream(Role.TXN),
            owns_messages=True,
            is_clustered=bool(self._settings.self_endpoint),
        )
        async with self._open_keepers(store, decider, clock) as keepers:
            neighbours = Neighbours(decider, keepers.leaser, keepers.sidecars)
            queue = QueueService(store, clock, neighbours, limits_of(self._settings))
            for manager in (*keepers.managers, queue):
                decider.enlist(manager)
            brought = BroughtDecisions(store, queue, clock)
            self._resource.apply = brought.apply
            self._resource.keep = brought.keep
            self._doors.open(queue)
            self._give_back.service = queue
            async with queue.running():
                yield


def create_app(settings: QueueSettings, open_keepers: OpenKeepers = no_keepers) -> FastAPI:
    drain = Drain()
    registry = Registry()
    peers = Peers(settings, Role.QUEUE, registry)
    part = QueuePart(settings, drain, registry, peers, open_keepers)
    return build_store_app("queue", settings, [part], drain=drain, registry=registry, peers=peers)
