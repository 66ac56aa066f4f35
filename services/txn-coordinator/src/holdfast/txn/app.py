"""The coordinator of transactions as a part of a process: its endpoints, its cluster, its sweep."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.txn.cluster.fan_out import IslandFanOut
from holdfast.txn.cluster.lead import Lead
from holdfast.txn.hosting import create_role_app
from holdfast.txn.layer.decisions import Decisions
from holdfast.txn.layer.sweep import Sweep
from holdfast.txn.layers import Layers
from holdfast.txn.node import TcCluster
from holdfast.txn.protocol.internal import InternalTxnRoutes
from holdfast.txn.protocol.lockd import TxnRoutes
from holdfast.txn.settings import TxnSettings


class TxnPart:
    """What the coordinator adds to an app."""

    def __init__(self, settings: PlaneSettings, registry: Registry) -> None:
        self._settings = settings
        self._cluster = TcCluster(settings, registry)
        self._txn = TxnRoutes(self._cluster)
        self._internal = InternalTxnRoutes()

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return self._txn.router, *self._cluster.routers

    @property
    def internal_routers(self) -> Sequence[ExpressRouter]:
        return (self._internal.router,)

    @asynccontextmanager
    async def running(self, layers: Layers) -> AsyncIterator[None]:
        store, coordinator, cluster = layers.store, layers.coordinator, self._cluster
        fan_out = IslandFanOut(
            lambda: cluster.registry, lambda: cluster.peers, self._settings, metrics=coordinator.metrics
        )
        decisions = Decisions(store, coordinator, store.clock, layers.leases, fan_out)
        coordinator.lead = lead = Lead(cluster, lambda: cluster.peers, decisions)
        self._txn.open(store, decisions, lead)
        self._internal.lead = lead
        sweep = Sweep(
            store,
            lead,
            store.clock,
            interval_s=self._settings.txn_replay_interval_s,
            metrics=coordinator.metrics,
        )
        coordinator.on_due = sweep.wake
        async with cluster.running(store), sweep.running():
            yield


def create_app(settings: TxnSettings) -> FastAPI:
    return create_role_app(settings, Role.TXN, lambda drain, registry: TxnPart(settings, registry))
