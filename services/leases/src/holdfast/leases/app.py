"""Leases as a part of a process: their endpoints, and what is forgotten in time."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain, Waits
from holdfast.common.serving.listener import ListenerDeclaration
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.layer.retention import KeyRetention, retention_of
from holdfast.leases.metrics import LeaseMetrics
from holdfast.leases.protocol.dflockd.listener import (
    declared_listener,
    line_options,
    lock_service,
    secret_of,
)
from holdfast.leases.protocol.dflockd.server import LockServer
from holdfast.leases.protocol.dflockd.stats import figures
from holdfast.leases.protocol.lockd import LeaseRoutes
from holdfast.leases.protocol.locks.listing import ListingRoutes
from holdfast.leases.protocol.locks.routes import LockRoutes
from holdfast.leases.protocol.locks.signals import SignalRoutes
from holdfast.leases.protocol.locks.withdrawal import LockWithdrawalRoutes
from holdfast.leases.protocol.withdrawal import WithdrawalRoutes
from holdfast.leases.settings import LeasesSettings
from holdfast.txn.hosting import create_role_app
from holdfast.txn.layers import Layers


class LeasesPart:
    """What leases bring into an app."""

    def __init__(self, settings: PlaneSettings, drain: Drain, registry: Registry) -> None:
        self._settings = settings
        self._drain = drain
        self._retention = retention_of(settings)
        self._metrics = LeaseMetrics(registry)
        self._leases = LeaseRoutes(settings, drain, self._metrics)
        self._withdrawal = WithdrawalRoutes()
        self._lock_server = LockServer(line_options(settings))
        self._lock_routes = LockRoutes(drain)
        self._signal_routes = SignalRoutes(drain, Waits(drain))
        self._listing = ListingRoutes()
        self._lock_withdrawal = LockWithdrawalRoutes(self._lock_routes.withdraw)

    @property
    def listeners(self) -> Sequence[ListenerDeclaration]:
        return (declared_listener(self._lock_server),)

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return (
            self._leases.router,
            self._lock_routes.router,
            self._listing.router,
            self._signal_routes.router,
        )

    @property
    def internal_routers(self) -> Sequence[ExpressRouter]:
        return self._withdrawal.router, self._lock_withdrawal.router

    @asynccontextmanager
    async def running(self, layers: Layers) -> AsyncIterator[None]:
        leases = layers.leases
        self._leases.service = leases
        self._withdrawal.service = leases
        self._metrics.watch(leases)
        self._drain.active_leases = lambda: leases.active
        retention = KeyRetention(
            layers.store,
            layers.store.clock,
            self._retention,
            expire=leases.end_expired,
            count=self._metrics.forgotten.inc,
        )
        locks = lock_service(self._settings, layers.store)
        self._lock_server.service = locks
        locks.figures = lambda: figures(locks, len(self._lock_server.connections))
        self._lock_server.secret = secret_of(self._settings)
        self._metrics.watch_locks(locks, self._lock_server)
        self._drain.at_begin(locks.begin_stop)
        for routes in (self._lock_routes, self._signal_routes, self._listing):
            routes.service = locks
        async with retention.running(), locks.running():
            yield


def create_app(settings: LeasesSettings) -> FastAPI:
    return create_role_app(
        settings, Role.LEASES, lambda drain, registry: LeasesPart(settings, drain, registry)
    )
