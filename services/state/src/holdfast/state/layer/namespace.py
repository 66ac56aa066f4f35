"""How the queries of each namespace are answered: which engine is preferred, and which one stands in."""

from holdfast.common.ids import uuid7
from holdfast.state.layer.errors import NamespaceConfigConflict, QueryEngineUnavailable
from holdfast.state.layer.index.writer import IndexStates
from holdfast.state.layer.query.engine import Engine, preferred_by_default
from holdfast.state.layer.records_pb2 import NamespaceConfig
from holdfast.storage.port import Store, Transaction, View
from holdfast.storage.tables import Table

CONFIGS = Table("sys", NamespaceConfig)
_KIND = "namespace"


NO_ENGINE = "none"
PREFERRED_ENGINES = frozenset(Engine)
FALLBACK_ENGINES = frozenset((NO_ENGINE, Engine.SCAN))


def engine_of(config: NamespaceConfig, asked: Engine | None) -> Engine:
    """The engine that answers; None asks for whichever is preferred."""
    if asked is None or asked == config.preferred_engine:
        return Engine(config.preferred_engine)
    if asked == config.fallback_engine:
        return Engine(asked)
    raise QueryEngineUnavailable(f"this namespace is not configured for the {asked} engine")


class NamespaceService:
    """The configuration of every namespace of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index_states = IndexStates(store)
        self._preferred = preferred_by_default(store)

    async def get(self, namespace: str) -> NamespaceConfig:
        return await self._store.view(lambda view: self.read(view, namespace))

    def read(self, view: View, namespace: str) -> NamespaceConfig:
        """Without an ETag: none is stored, these are the defaults."""
        found = CONFIGS.get(view, _KIND, namespace)
        return found or NamespaceConfig(preferred_engine=self._preferred, fallback_engine=NO_ENGINE)

    async def set(
        self, namespace: str, *, preferred: str, fallback: str, expected_etag: str
    ) -> NamespaceConfig:
        """Store a configuration; an empty engine keeps its value, an empty ETag expects nothing.

        An index that is turned on or off by it is built or cleared in the background.
        """
        etag = uuid7()

        def configure(tx: Transaction) -> NamespaceConfig:
            config = self.read(tx, namespace)
            if expected_etag and expected_etag != config.etag:
                raise NamespaceConfigConflict("the configuration was changed meanwhile; read it again")
            config.preferred_engine = preferred or config.preferred_engine
            config.fallback_engine = fallback or config.fallback_engine
            config.etag = etag
            CONFIGS.put(tx, config, _KIND, namespace)
            is_wanted = config.preferred_engine == Engine.INDEX
            self._index_states.want(tx, namespace, is_wanted=is_wanted)
            return config

        return await self._store.transact(configure)
