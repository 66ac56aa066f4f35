"""The coordinator alone in its process, over the store that it shares with the other services."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.express.router import ExpressRouter
from holdfast.common.metrics import Registry
from holdfast.common.role import Role
from holdfast.common.upstream.peers import Peers
from holdfast.storage.hosting import build_store_app
from holdfast.storage.port import Store
from holdfast.storage.resource import Member
from holdfast.txn.coordinator import Coordinator
from holdfast.txn.courier import ServiceCourier
from holdfast.txn.decisions import Decisions
from holdfast.txn.internal_routes import InternalTxnRoutes
from holdfast.txn.island import backend_hash_of
from holdfast.txn.islands import IslandCourier
from holdfast.txn.lead import Lead
from holdfast.txn.metrics import TxnMetrics
from holdfast.txn.routes import TxnRoutes
from holdfast.txn.settings import TxnSettings
from holdfast.txn.sweep import Sweep
from holdfast.txn.tc_cluster import TcCluster


class TxnPart:
    """What the coordinator brings into its app."""

    def __init__(self, settings: TxnSettings, peers: Peers, registry: Registry) -> None:
        self._settings = settings
        self._peers = peers
        self._metrics = TxnMetrics(registry)
        self._cluster = TcCluster(settings, registry)
        self._txn = TxnRoutes(self._cluster, self._cluster.access)
        self._internal = InternalTxnRoutes()

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return self._txn.router, self._internal.router, *self._cluster.routers

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncIterator[None]:
        settings = self._settings
        clock = store.clock
        backend_hash = await backend_hash_of(store)
        coordinator = Coordinator(
            clock,
            backend_hash=backend_hash,
            retention_s=settings.tc_decision_retention_s,
            record_ttl_s=settings.ttl_s_default,
            metrics=self._metrics,
        )
        services = {role: self._peers.upstream(role) for role in (Role.LEASES, Role.STATE, Role.QUEUE)}
        cluster = self._cluster
        islands = IslandCourier(
            lambda: cluster.registry, lambda: cluster.peers, settings, metrics=self._metrics
        )
        courier = ServiceCourier(services, settings, backend_hash, islands, metrics=self._metrics)
        decisions = Decisions(store, coordinator, clock, _Nobody(), courier)
        lead = Lead(cluster, lambda: cluster.peers, decisions)
        self._txn.open(store, decisions, lead)
        self._internal.decisions = decisions
        self._internal.lead = lead
        sweep = Sweep(store, lead, clock, interval_s=settings.txn_replay_interval_s, metrics=self._metrics)
        coordinator.on_due = sweep.wake
        async with cluster.running(store), sweep.running():
            yield


class _Nobody:
    """Waiters are told by the service that ends their lease."""

    def freed(self, members: Sequence[Member]) -> None:
        return


def create_app(settings: TxnSettings) -> FastAPI:
    registry = Registry()
    peers = Peers(settings, Role.TXN, registry)
    part = TxnPart(settings, peers, registry)
    return build_store_app("txn", settings, [part], registry=registry, peers=peers)
