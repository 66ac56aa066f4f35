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
        self._members[hold.lease.lease_id] = (hold, session)

    def remove(self, hold: Hold) -> None:
        self._members.pop(hold.lease.lease_id, None)

    def sessions(self) -> list[S]:
        return [session for _, session in list(self._members.values())]

    def want_back(self, endpoint: Endpoint) -> None:
        """The server there is about to stop: everything held through it goes back when it can."""
        for hold, _ in list(self._members.values()):
            if hold.endpoint == endpoint:
                hold.want_back()
