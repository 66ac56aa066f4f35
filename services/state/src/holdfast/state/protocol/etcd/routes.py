"""All endpoints of etcd's gateway over one key space."""

from collections.abc import Sequence

from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.drain import Drain, Waits
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.protocol.etcd.identity import Identity
from holdfast.state.protocol.etcd.kv import KvRoutes
from holdfast.state.protocol.etcd.leases import LeaseRoutes
from holdfast.state.protocol.etcd.maintenance import MaintenanceRoutes
from holdfast.state.protocol.etcd.watch import WatchRoutes
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter


class EtcdRoutes:
    """They are declared in every process, and served where there is a store."""

    def __init__(self, drain: Drain) -> None:
        self._kv = KvRoutes()
        self._leases = LeaseRoutes()
        self._watch = WatchRoutes(drain, Waits(drain))
        self._maintenance = MaintenanceRoutes()

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return tuple(routes.router for routes in (self._kv, self._leases, self._watch, self._maintenance))

    def serve(self, service: KeySpace, identity: Identity) -> None:
        """From now on; called before the first request."""
        answers = AnswerWriter(identity)
        for routes in (self._kv, self._leases, self._watch, self._maintenance):
            routes.service = service
            routes.answers = answers
        self._maintenance.identity = identity
