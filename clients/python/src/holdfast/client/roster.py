"""The sessions that a client looks after."""

from typing import Generic, TypeVar

from holdfast.client.endpoint import Endpoint
from holdfast.client.hold import Hold

S = TypeVar("S")


class Roster(Generic[S]):
    """Live sessions by lease id, each with its hold. Threads may use it: every look takes a copy."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[Hold, S]] = {}

    def add(self, hold: Hold, session: S) -> None:
        for other, _ in list(self._members.values()):
            if other.lease.txn_id == hold.lease.txn_id:
                # Releasing one decides for all of the transaction: none of them is idle.
                other.has_staged = hold.has_staged = True
        hold.on_decision = lambda is_decided: self._decide(hold, is_decided)
        self._members[hold.lease.lease_id] = (hold, session)

    def _decide(self, decider: Hold, is_decided: bool) -> None:
        """The release of one lease ends all of its transaction: the others are not lost, they are done."""
        for other, _ in list(self._members.values()):
            if other is not decider and other.lease.txn_id == decider.lease.txn_id:
                other.is_decided = is_decided

    def remove(self, hold: Hold) -> None:
        self._members.pop(hold.lease.lease_id, None)

    def sessions(self) -> list[S]:
        return [session for _, session in list(self._members.values())]

    def want_back(self, endpoint: Endpoint) -> None:
        """The server there is about to stop: everything held through it goes back when it can."""
        for hold, _ in list(self._members.values()):
            if hold.endpoint == endpoint:
                hold.want_back()
