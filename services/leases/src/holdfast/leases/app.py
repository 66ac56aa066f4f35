"""Leases alone in their process, over the store that they share with the other services."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.drain import Drain
from holdfast.common.express.router import ExpressRouter
from holdfast.common.metrics import Registry
from holdfast.common.role import Role
from holdfast.common.upstream.peers import Peers
from holdfast.leases.brought import BroughtDecisions
from holdfast.leases.metrics import LeaseMetrics
from holdfast.leases.retention import KeyRetention
from holdfast.leases.routes import LeaseRoutes
from holdfast.leases.service import LeaseService
from holdfast.leases.settings import LeasesSettings
from holdfast.leases.withdrawal import WithdrawalRoutes
from holdfast.storage.hosting import build_store_app
from holdfast.storage.port import Store
from holdfast.storage.remote_decision import RemoteDecider
from holdfast.storage.resource_routes import ResourceRoutes
from holdfast.storage.retention import retention_of


class LeasesPart:
    """What leases bring into their app."""

    def __init__(self, settings: LeasesSettings, drain: Drain, registry: Registry, peers: Peers) -> None:
        self._drain = drain
        self._peers = peers
        self._is_clustered = bool(settings.self_endpoint)
        self._retention = retention_of(settings)
        self._metrics = LeaseMetrics(registry)
        self._leases = LeaseRoutes(settings, drain, self._metrics)
        self._resource = ResourceRoutes()
        self._withdrawal = WithdrawalRoutes()

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return self._leases.router, self._resource.router, self._withdrawal.router

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncIterator[None]:
        decider = RemoteDecider(
            self._peers.upstream(Role.TXN), owns_messages=False, is_clustered=self._is_clustered
        )
        clock = store.clock
        leases = LeaseService(store, decider, clock, on_end=self._drain.lease_ended)
        decider.enlist(leases)
        self._leases.service = leases
        self._withdrawal.service = leases
        brought = BroughtDecisions(store, leases)
        self._resource.apply = brought.apply
        self._resource.keep = brought.keep
        self._metrics.watch(leases)
        self._drain.active_leases = lambda: leases.active
        retention = KeyRetention(
            store, clock, self._retention, expire=leases.end_expired, count=self._metrics.forgotten.inc
        )
        async with leases.running(), retention.running():
            yield


def create_app(settings: LeasesSettings) -> FastAPI:
    drain = Drain()
    registry = Registry()
    peers = Peers(settings, Role.LEASES, registry)
    part = LeasesPart(settings, drain, registry, peers)
    return build_store_app("leases", settings, [part], drain=drain, registry=registry, peers=peers)
