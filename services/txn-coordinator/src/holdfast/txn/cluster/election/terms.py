"""The highest term that was voted for or followed here: it outlives the process, so that no term is led twice."""

from typing import Final, NamedTuple, Protocol

from holdfast.storage.port import RANGE_LIMIT_MAX, Store, Transaction
from holdfast.storage.tables import Table
from holdfast.txn.layer.records_pb2 import TcTerm

_TERMS = Table("sys", TcTerm)
_KIND = "tc-term"


class Term(NamedTuple):
    """A term, and the leader that was followed in it; none if this node only voted."""

    number: int = 0
    leader_id: str = ""

    def is_news_to(self, stored: "Term") -> bool:
        return self.number > stored.number or (
            self.number == stored.number and stored.leader_id == "" != self.leader_id
        )


NO_TERM: Final = Term()


class Terms(Protocol):
    """Where a node keeps its term. It never falls."""

    async def highest(self) -> Term: ...

    async def raise_to(self, term: Term) -> None:
        """Durable when this returns."""
        ...


class StoredTerms:
    """In the store of the node, beside those of other nodes over the same store."""

    def __init__(self, store: Store, node_id: str) -> None:
        self._store = store
        self._node_id = node_id

    async def highest(self) -> Term:
        """This node's own; if it is new here, the highest of all, since their terms stand in stored decisions."""
        own = await _TERMS.fetch(self._store, _KIND, self._node_id)
        if own is not None:
            return Term(own.term, own.leader_id)
        rows = await _TERMS.fetch_range(self._store, _KIND, limit=RANGE_LIMIT_MAX)
        return Term(max((row.message.term for row in rows), default=0))

    async def raise_to(self, term: Term) -> None:
        def write(tx: Transaction) -> None:
            found = _TERMS.get(tx, _KIND, self._node_id)
            if found is None or term.is_news_to(Term(found.term, found.leader_id)):
                _TERMS.put(tx, TcTerm(term=term.number, leader_id=term.leader_id), _KIND, self._node_id)

        await self._store.transact(write)
