"""Where the resource managers of each store are reached, as this node's store keeps it."""

from dataclasses import dataclass
from typing import Final

from holdfast.storage.port import Store, Transaction
from holdfast.storage.tables import Table
from holdfast.txn.cluster.errors import RmUnavailable
from holdfast.txn.layer.records_pb2 import TcResourceManager

BACKENDS_MAX: Final = 1000
ENDPOINTS_MAX: Final = 100

_MANAGERS = Table("sys", TcResourceManager)
_KIND = "tc-rm"


@dataclass(frozen=True, slots=True)
class Backend:
    """One store, and who applies decisions on it."""

    backend_hash: str
    endpoints: tuple[str, ...] = ()
    updated_at_ms: int = 0


class RmTable:
    """The records of resource managers in one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def backends(self) -> list[Backend]:
        rows = await _MANAGERS.fetch_range(self._store, _KIND, limit=BACKENDS_MAX)
        return [_backend(str(row.parts[1]), row.message) for row in rows]

    async def endpoints(self, backend_hash: str) -> tuple[str, ...]:
        found = await _MANAGERS.fetch(self._store, _KIND, backend_hash)
        return tuple(found.endpoints) if found is not None else ()

    async def add(self, backend_hash: str, endpoint: str, now_ms: int) -> tuple[Backend, bool]:
        """The backend as it is now, and whether anything changed."""

        def write(tx: Transaction) -> tuple[Backend, bool]:
            found = _MANAGERS.get(tx, _KIND, backend_hash)
            if found is not None and endpoint in found.endpoints:
                return _backend(backend_hash, found), False
            manager = found or TcResourceManager()
            if len(manager.endpoints) >= ENDPOINTS_MAX:
                raise RmUnavailable(f"this backend has {ENDPOINTS_MAX} endpoints, which is the limit")
            if found is None and len(_MANAGERS.range(tx, _KIND, limit=BACKENDS_MAX)) >= BACKENDS_MAX:
                raise RmUnavailable(f"the registry has {BACKENDS_MAX} backends, which is the limit")
            endpoints = sorted({*manager.endpoints, endpoint})
            manager = TcResourceManager(endpoints=endpoints, updated_at_ms=now_ms)
            _MANAGERS.put(tx, manager, _KIND, backend_hash)
            return _backend(backend_hash, manager), True

        return await self._store.transact(write)

    async def remove(self, backend_hash: str, endpoint: str, now_ms: int) -> tuple[Backend, bool]:
        """The backend as it is now, and whether anything changed."""

        def write(tx: Transaction) -> tuple[Backend, bool]:
            found = _MANAGERS.get(tx, _KIND, backend_hash)
            if found is None or endpoint not in found.endpoints:
                return _backend(backend_hash, found or TcResourceManager(updated_at_ms=now_ms)), False
            endpoints = [one for one in found.endpoints if one != endpoint]
            manager = TcResourceManager(endpoints=endpoints, updated_at_ms=now_ms)
            if endpoints:
                _MANAGERS.put(tx, manager, _KIND, backend_hash)
            else:
                _MANAGERS.delete(tx, _KIND, backend_hash)
            return _backend(backend_hash, manager), True

        return await self._store.transact(write)


def _backend(backend_hash: str, manager: TcResourceManager) -> Backend:
    return Backend(backend_hash, tuple(manager.endpoints), manager.updated_at_ms)
