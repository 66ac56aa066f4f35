"""All endpoints of etcd's gateway over one key space."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.drain import Drain, Waits
from holdfast.state.layer.document.published import PublishedCache
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.protocol.etcd.concurrency.election import ElectionRoutes
from holdfast.state.protocol.etcd.concurrency.lock import LockRoutes
from holdfast.state.protocol.etcd.concurrency.turn import Turns
from holdfast.state.protocol.etcd.identity import Identity
from holdfast.state.protocol.etcd.kv import KvRoutes
from holdfast.state.protocol.etcd.leases import LeaseRoutes
from holdfast.state.protocol.etcd.maintenance import MaintenanceRoutes
from holdfast.state.protocol.etcd.warm import WarmRanges
from holdfast.state.protocol.etcd.watch import WatchRoutes
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter
from holdfast.storage.port import Store


class EtcdRoutes:
    """They are declared in every process, and served where there is a store."""

    def __init__(self, drain: Drain) -> None:
        self._waits = Waits(drain)
        self._kv = KvRoutes()
        self._leases = LeaseRoutes()
        self._watch = WatchRoutes(drain, self._waits)
        self._maintenance = MaintenanceRoutes()
        self._lock = LockRoutes(drain)
        self._election = ElectionRoutes(drain, self._waits)
        self._all = (
            self._kv,
            self._leases,
            self._watch,
            self._maintenance,
            self._lock,
            self._election,
        )

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return [routes.router for routes in self._all]

    @asynccontextmanager
    async def running(
        self,
        service: KeySpace,
        store: Store,
        identity: Identity,
        cache: PublishedCache[bytes] | None = None,
    ) -> AsyncIterator[None]:
        """`service` runs for longer than the block. `cache`: one that the store keeps right."""
        answers = AnswerWriter(identity)
        turns = Turns(service, self._waits)
        for routes in self._all:
            routes.service = service
            routes.answers = answers
        if cache is not None:
            self._kv.warm = WarmRanges(cache, service, answers)
        self._maintenance.identity = identity
        self._maintenance.store = store
        self._lock.turns = self._election.turns = turns
        async with turns.running():
            yield
