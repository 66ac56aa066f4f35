"""The sessions that a client looks after."""

import threading
from typing import Generic, TypeVar

from holdfast.client.session.hold import Hold
from holdfast.client.wire.endpoint import Endpoint

S = TypeVar("S")


class Roster(Generic[S]):
    """Live sessions by lease id, each with its hold, and holds by transaction. Threads may use it."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[Hold, S]] = {}
        self._transactions: dict[str, list[Hold]] = {}
        self._lock = threading.Lock()

    def add(self, hold: Hold, session: S) -> None:
        with self._lock:
            holds = self._transactions.setdefault(hold.lease.txn_id, [])
            holds.append(hold)
            self._members[hold.lease.lease_id] = (hold, session)
            if len(holds) > 1:
                # Releasing one decides for all of the transaction: none of them is idle.
                for other in holds:
                    other.has_staged = True
        hold.on_decision = lambda is_decided: self._decide(hold, is_decided)

    def _decide(self, decider: Hold, is_decided: bool) -> None:
        """The release of one lease ends all of its transaction: the others are not lost, they are done."""
        with self._lock:
            others = [
                hold for hold in self._transactions.get(decider.lease.txn_id, ()) if hold is not decider
            ]
        for other in others:
            other.is_decided = is_decided

    def remove(self, hold: Hold) -> None:
        with self._lock:
            if self._members.pop(hold.lease.lease_id, None) is None:
                return
            holds = self._transactions[hold.lease.txn_id]
            holds.remove(hold)
            if not holds:
                del self._transactions[hold.lease.txn_id]

    def sessions(self) -> list[S]:
        return [session for _, session in list(self._members.values())]

    def want_back(self, endpoint: Endpoint) -> None:
        """The server there is about to stop: everything held through it goes back when it can."""
        for hold, _ in list(self._members.values()):
            if hold.endpoint == endpoint:
                hold.want_back()
