"""The services of the plane in one process: wired to each other by function calls, over one store."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.common.drain import Drain
from holdfast.common.express.router import ExpressRouter
from holdfast.common.metrics import Registry
from holdfast.common.settings import PlaneSettings
from holdfast.leases.metrics import LeaseMetrics
from holdfast.leases.retention import KeyRetention
from holdfast.leases.routes import LeaseRoutes
from holdfast.leases.service import LeaseService
from holdfast.queue.bonds import Neighbours
from holdfast.queue.doors import QueueDoors
from holdfast.queue.limits import limits_of
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.service import QueueService
from holdfast.state.attachment_routes import AttachmentRoutes
from holdfast.state.attachments import AttachmentService
from holdfast.state.index_builder import IndexBuilder
from holdfast.state.index_metrics import IndexMetrics
from holdfast.state.metrics import AttachmentMetrics, RetentionMetrics
from holdfast.state.mutations import MutationService
from holdfast.state.namespace_config import NamespaceService
from holdfast.state.namespace_routes import NamespaceRoutes
from holdfast.state.query_routes import QueryRoutes
from holdfast.state.query_service import QueryService
from holdfast.state.retention import DocumentRetention
from holdfast.state.routes import StateRoutes
from holdfast.state.service import StateService
from holdfast.storage.port import Store
from holdfast.storage.retention import retention_of
from holdfast.txn.coordinator import Coordinator
from holdfast.txn.decisions import Decisions
from holdfast.txn.island import backend_hash_of
from holdfast.txn.islands import IslandCourier
from holdfast.txn.lead import Lead
from holdfast.txn.metrics import TxnMetrics
from holdfast.txn.routes import TxnRoutes
from holdfast.txn.sweep import Sweep
from holdfast.txn.tc_cluster import TcCluster


class Plane:
    """The part of the gateway's app that is the other services."""

    def __init__(self, settings: PlaneSettings, drain: Drain, registry: Registry) -> None:
        self._drain = drain
        self._settings = settings
        self._lease_metrics = LeaseMetrics(registry)
        self._leases = LeaseRoutes(settings, drain, self._lease_metrics)
        self._state = StateRoutes(settings)
        self._attachments = AttachmentRoutes(settings, AttachmentMetrics(registry))
        self._index_metrics = IndexMetrics(registry)
        self._query = QueryRoutes(settings, self._index_metrics)
        self._retention_metrics = RetentionMetrics(registry)
        self._namespaces = NamespaceRoutes(settings)
        self._queue = QueueDoors(settings, drain, QueueMetrics(registry))
        self._txn_metrics = TxnMetrics(registry)
        self._cluster = TcCluster(settings, registry)
        self._txn = TxnRoutes(self._cluster, self._cluster.access)

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return (
            self._leases.router,
            self._state.router,
            self._attachments.router,
            self._query.router,
            self._namespaces.router,
            *self._queue.routers,
            self._txn.router,
            *self._cluster.routers,
        )

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncIterator[None]:
        clock = store.clock
        coordinator = Coordinator(
            clock,
            backend_hash=await backend_hash_of(store),
            retention_s=self._settings.tc_decision_retention_s,
            record_ttl_s=self._settings.ttl_s_default,
            metrics=self._txn_metrics,
        )
        leases = LeaseService(store, coordinator, clock, on_end=self._drain.lease_ended)
        state = StateService(store, clock)
        coordinator.enlist(state)
        coordinator.enlist(leases)
        self._leases.service = leases
        self._state.service = state
        self._state.mutations = MutationService(state, clock, self._settings.json_bytes_max)
        self._attachments.service = AttachmentService(store, clock)
        self._namespaces.service = NamespaceService(store)
        self._query.service = QueryService(store, state, self._namespaces.service, clock)
        queue = QueueService(store, clock, Neighbours(coordinator, leases, state), limits_of(self._settings))
        coordinator.enlist(queue)
        self._queue.open(queue)
        self._lease_metrics.watch(leases)
        self._drain.active_leases = lambda: leases.active
        cluster = self._cluster
        islands = IslandCourier(
            lambda: cluster.registry, lambda: cluster.peers, self._settings, metrics=self._txn_metrics
        )
        decisions = Decisions(store, coordinator, clock, leases, islands)
        coordinator.lead = lead = Lead(cluster, lambda: cluster.peers, decisions)
        self._txn.open(store, decisions, lead)
        sweep = Sweep(
            store,
            lead,
            clock,
            interval_s=self._settings.txn_replay_interval_s,
            metrics=self._txn_metrics,
        )
        coordinator.on_due = sweep.wake
        builder = IndexBuilder(store, state, self._index_metrics)
        retention = retention_of(self._settings)
        keys = KeyRetention(
            store, clock, retention, expire=leases.end_expired, count=self._lease_metrics.forgotten.inc
        )
        documents = DocumentRetention(store, state, clock, retention, self._retention_metrics)
        async with (
            leases.running(),
            builder.running(),
            queue.running(),
            self._cluster.running(store),
            sweep.running(),
            keys.running(),
            documents.running(),
        ):
            yield
