"""State as a part of a process: documents, attachments, queries, the key space, and the work behind them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain, Waits
from holdfast.common.serving.listener import ListenerDeclaration
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.layer.retention import retention_of
from holdfast.queue.layer.keys.service import KeyQueues
from holdfast.queue.layer.keys.settings import defaults_of
from holdfast.state.layer.attachment.service import AttachmentService
from holdfast.state.layer.document.mutation.service import MutationService
from holdfast.state.layer.document.published import PublishedCache
from holdfast.state.layer.document.retention import DocumentRetention
from holdfast.state.layer.index.builder import IndexBuilder
from holdfast.state.layer.namespace import NamespaceService
from holdfast.state.layer.query.service import QueryService
from holdfast.state.layer.watch.hub import EventHub
from holdfast.state.metrics import (
    AttachmentMetrics,
    IndexMetrics,
    RetentionMetrics,
    WatchMetrics,
    show_keys,
    show_published,
)
from holdfast.state.protocol.etcd.identity import identity_of
from holdfast.state.protocol.etcd.listener import LISTENER as ETCD_LISTENER
from holdfast.state.protocol.etcd.routes import EtcdRoutes
from holdfast.state.protocol.lockd.attachments import AttachmentRoutes
from holdfast.state.protocol.lockd.documents import StateRoutes
from holdfast.state.protocol.lockd.namespaces import NamespaceRoutes
from holdfast.state.protocol.lockd.queries import QueryRoutes
from holdfast.state.protocol.lockd.ready import Ready, ReadyAnswers
from holdfast.state.protocol.lockd.watch import WatchRoutes
from holdfast.state.settings import StateSettings
from holdfast.txn.hosting import create_role_app
from holdfast.txn.layers import Layers

KEYS_SHARE: Final = 4
"""One part in so many of the memory for answers is for keys, the others are for documents."""


class StatePart:
    """What state adds to an app."""

    internal_routers: Sequence[ExpressRouter] = ()
    listeners: Sequence[ListenerDeclaration] = (ETCD_LISTENER,)

    def __init__(self, settings: PlaneSettings, drain: Drain, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._state = StateRoutes(settings)
        self._published = PublishedCache[Ready](
            settings.state_cache_bytes - settings.state_cache_bytes // KEYS_SHARE
        )
        show_published(self._published, registry)
        self._attachments = AttachmentRoutes(settings, AttachmentMetrics(registry))
        self._index_metrics = IndexMetrics(registry)
        self._retention_metrics = RetentionMetrics(registry)
        self._query = QueryRoutes(settings, self._index_metrics)
        self._namespaces = NamespaceRoutes(settings)
        self._watch = WatchRoutes(settings, drain, Waits(drain))
        self._watch_metrics = WatchMetrics(registry)
        self._etcd = EtcdRoutes(drain)

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return (
            self._state.router,
            self._attachments.router,
            self._query.router,
            self._namespaces.router,
            self._watch.router,
            *self._etcd.routers,
        )

    @asynccontextmanager
    async def running(self, layers: Layers) -> AsyncIterator[None]:
        store, state = layers.store, layers.state
        clock = store.clock
        self._state.service = state
        self._state.mutations = MutationService(state, clock, self._settings.json_bytes_max)
        if self._published.bytes_max and store.keep_current(self._published):
            self._state.ready = ReadyAnswers(self._published)
        self._attachments.service = AttachmentService(store, clock)
        self._namespaces.service = NamespaceService(store)
        self._query.service = QueryService(store, state, self._namespaces.service, clock)
        retention = DocumentRetention(
            store, state, clock, retention_of(self._settings), self._retention_metrics
        )
        index = IndexBuilder(store, state, self._index_metrics)
        identity = await identity_of(store, self._settings)
        keys = KeyQueues(store, clock, identity.member_id, defaults_of(self._settings))
        show_keys(keys, self._registry)
        keys_cache = PublishedCache[bytes](self._settings.state_cache_bytes // KEYS_SHARE)
        is_kept = keys_cache.bytes_max > 0 and store.keep_current(keys_cache)
        etcd = self._etcd.running(keys, store, identity, keys_cache if is_kept else None)
        hub = self._watch.hub = EventHub(store)
        self._watch_metrics.show(hub)
        async with index.running(), retention.running(), keys.running(), etcd, hub.running():
            yield


def create_app(settings: StateSettings) -> FastAPI:
    return create_role_app(settings, Role.STATE, lambda drain, registry: StatePart(settings, drain, registry))
