"""What the index of each namespace is good for, and how that changes.

    OFF ──wanted──► BUILDING ──every document is in──► READY
     ▲                 │  not wanted                     │ not wanted, or no longer right
     └──not wanted── CLEARING ◄──────────────────────────┘
                       └──wanted──► BUILDING

Every publish reads the phase in its own transaction, so a phase begins for all writers at the same moment.
"""

from typing import Final

from holdfast.state.layer.query.engine import Engine, preferred_by_default
from holdfast.state.layer.records_pb2 import IndexFormat, IndexProgress, IndexState
from holdfast.storage.keys import next_key
from holdfast.storage.port import Store, Transaction, View
from holdfast.storage.tables import Table

STATES = Table("indexinfo", IndexState)
PROGRESS = Table("indexprogress", IndexProgress)
FORMATS = Table("indexinfo", IndexFormat)
_STATE: Final = "state"
_FORMAT: Final = "format"
_PAGE_NAMESPACES: Final = 500
_WORKING: Final = (IndexState.CLEARING, IndexState.BUILDING)


class IndexStates:
    """The phases of all namespaces of one store."""

    def __init__(self, store: Store) -> None:
        is_wanted = preferred_by_default(store) is Engine.INDEX
        self._default = IndexState(
            phase=IndexState.READY if is_wanted else IndexState.OFF, is_wanted=is_wanted
        )

    def key(self, namespace: str) -> bytes:
        return STATES.key(_STATE, namespace)

    def get(self, view: View, namespace: str) -> IndexState:
        """Not to be changed. A namespace without a state was never turned on or off since its first document."""
        return STATES.get(view, _STATE, namespace) or self._default

    def want(self, tx: Transaction, namespace: str, *, is_wanted: bool) -> None:
        """Turn the index of a namespace on or off."""
        state = self.get(tx, namespace)
        if state.is_wanted == is_wanted:
            return
        if is_wanted and state.phase == IndexState.OFF:
            self.enter(tx, namespace, IndexState.BUILDING, is_wanted=True)
        else:
            self.enter(tx, namespace, IndexState.CLEARING, is_wanted=is_wanted)

    def enter(
        self, tx: Transaction, namespace: str, phase: IndexState.Phase.ValueType, *, is_wanted: bool
    ) -> None:
        """A phase begins, and its progress with it."""
        STATES.put(tx, IndexState(phase=phase, is_wanted=is_wanted), _STATE, namespace)
        PROGRESS.delete(tx, namespace)

    def progress(self, view: View, namespace: str) -> IndexProgress:
        return PROGRESS.get(view, namespace) or IndexProgress()

    def put_progress(self, tx: Transaction, namespace: str, progress: IndexProgress) -> None:
        PROGRESS.put(tx, progress, namespace)

    def working(self, view: View, after: str) -> tuple[list[str], str]:
        """Namespaces whose phase has work to do, from one page of all states, and where the next page begins."""
        start = next_key(STATES.key(_STATE, after)) if after else None
        rows = STATES.range(view, _STATE, limit=_PAGE_NAMESPACES, start=start)
        names = [str(row.parts[1]) for row in rows if row.message.phase in _WORKING]
        return names, str(rows[-1].parts[1]) if len(rows) == _PAGE_NAMESPACES else ""

    def format(self, view: View) -> str:
        """How the entries of this store were made; empty: not known."""
        found = FORMATS.get(view, _FORMAT)
        return "" if found is None else found.name

    def put_format(self, tx: Transaction, name: str) -> None:
        FORMATS.put(tx, IndexFormat(name=name), _FORMAT)

    def bounds(self) -> tuple[bytes, bytes]:
        """Where phases and format are, for a watch."""
        return STATES.bounds()
