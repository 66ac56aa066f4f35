"""State alone in its process, over the store that it shares with the other services."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.express.router import ExpressRouter
from holdfast.common.metrics import Registry
from holdfast.common.role import Role
from holdfast.common.upstream.peers import Peers
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
from holdfast.state.settings import StateSettings
from holdfast.storage.hosting import build_store_app
from holdfast.storage.port import Store
from holdfast.storage.resource import Decision, Member
from holdfast.storage.resource_routes import ResourceRoutes
from holdfast.storage.retention import retention_of


class StatePart:
    """What state brings into its app."""

    def __init__(self, settings: StateSettings, registry: Registry) -> None:
        self._settings = settings
        self._state = StateRoutes(settings)
        self._attachments = AttachmentRoutes(settings, AttachmentMetrics(registry))
        self._index_metrics = IndexMetrics(registry)
        self._retention_metrics = RetentionMetrics(registry)
        self._query = QueryRoutes(settings, self._index_metrics)
        self._namespaces = NamespaceRoutes(settings)
        self._resource = ResourceRoutes()

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return (
            self._state.router,
            self._attachments.router,
            self._query.router,
            self._namespaces.router,
            self._resource.router,
        )

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncIterator[None]:
        clock = store.clock
        state = StateService(store, clock)
        self._state.service = state
        self._state.mutations = MutationService(state, clock, self._settings.json_bytes_max)
        self._attachments.service = AttachmentService(store, clock)
        self._namespaces.service = NamespaceService(store)
        self._query.service = QueryService(store, state, self._namespaces.service, clock)

        async def apply(txn_id: str, decision: Decision, members: Sequence[Member]) -> bool:
            await store.transact(lambda tx: state.apply(tx, txn_id, decision, members))
            return True

        async def keep(txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
            return expires_at_ms  # What is staged lives as long as its lease.

        self._resource.apply = apply
        self._resource.keep = keep
        retention = DocumentRetention(
            store, state, clock, retention_of(self._settings), self._retention_metrics
        )
        async with IndexBuilder(store, state, self._index_metrics).running(), retention.running():
            yield


def create_app(settings: StateSettings) -> FastAPI:
    registry = Registry()
    peers = Peers(settings, Role.STATE, registry)
    part = StatePart(settings, registry)
    return build_store_app("state", settings, [part], registry=registry, peers=peers)
