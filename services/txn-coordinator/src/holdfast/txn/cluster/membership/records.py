"""The nodes of the cluster as this store knows them: each record holds until its node fails to renew it in time."""

from dataclasses import dataclass
from typing import Final

from holdfast.storage.port import Store, Transaction
from holdfast.storage.tables import Row, Table
from holdfast.txn.cluster.errors import ClusterUnavailable
from holdfast.txn.layer.records_pb2 import TcMember

MEMBERS_MAX: Final = 500
_FORGOTTEN_AFTER_MS: Final = 24 * 3600 * 1000

_MEMBERS = Table("sys", TcMember)
_KIND = "tc-member"


@dataclass(frozen=True, slots=True)
class Roster:
    """Who is there. The endpoints are sorted, each once."""

    endpoints: tuple[str, ...] = ()
    updated_at_ms: int = 0
    known_count: int = 0
    """Nodes that have not left on purpose, also when they are silent."""
    left_count: int = 0

    def quorum(self, fixed_size: int, peers_count: int) -> int:
        """More than half of all nodes that belong to the cluster, seen or not; those that left no longer do."""
        size = max(fixed_size - self.left_count, self.known_count, peers_count)
        return size // 2 + 1


class MemberTable:
    """The records of members in one store. Without `keeps_all`, those long gone are forgotten."""

    def __init__(self, store: Store, *, ttl_ms: int, keeps_all: bool) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._keeps_all = keeps_all

    async def roster(self, now_ms: int) -> Roster:
        return _roster(await _MEMBERS.fetch_range(self._store, _KIND, limit=MEMBERS_MAX), now_ms)

    async def announce(self, identity: str, endpoint: str, now_ms: int) -> int:
        """Returns until when the member is known, unless it says so again."""
        expires_at_ms = now_ms + self._ttl_ms

        def write(tx: Transaction) -> None:
            rows = _MEMBERS.range(tx, _KIND, limit=MEMBERS_MAX)
            if len(rows) >= MEMBERS_MAX and not any(row.parts[1] == identity for row in rows):
                raise ClusterUnavailable(f"the cluster has {MEMBERS_MAX} members, which is the limit")
            for row in rows:
                if not self._keeps_all and row.message.updated_at_ms < now_ms - _FORGOTTEN_AFTER_MS:
                    _MEMBERS.delete(tx, *row.parts)
            member = TcMember(endpoint=endpoint, updated_at_ms=now_ms, expires_at_ms=expires_at_ms)
            _MEMBERS.put(tx, member, _KIND, identity)

        await self._store.transact(write)
        return expires_at_ms

    async def leave(self, identity: str, now_ms: int) -> None:
        """Remembered, so that a fixed quorum no longer counts it. Unknown members have nothing to leave."""

        def write(tx: Transaction) -> None:
            member = _MEMBERS.get(tx, _KIND, identity)
            if member is None or member.has_left:
                return
            member.has_left, member.updated_at_ms, member.expires_at_ms = True, now_ms, now_ms
            _MEMBERS.put(tx, member, _KIND, identity)

        await self._store.transact(write)


def _roster(rows: list[Row[TcMember]], now_ms: int) -> Roster:
    staying = [row.message for row in rows if not row.message.has_left]
    active = [member for member in staying if member.expires_at_ms > now_ms]
    known = {member.endpoint for member in staying}
    return Roster(
        endpoints=tuple(sorted({member.endpoint for member in active})),
        updated_at_ms=max((row.message.updated_at_ms for row in rows), default=0),
        known_count=len(known),
        left_count=sum(row.message.has_left and row.message.endpoint not in known for row in rows),
    )
