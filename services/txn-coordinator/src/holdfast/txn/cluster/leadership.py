"""The port to the election: whether this node may decide, under which term, and whom to ask otherwise."""

from dataclasses import dataclass
from typing import Protocol

from holdfast.txn.cluster.errors import TcUnavailable
from holdfast.txn.layer.errors import TcTermRequired, TcTermStale


@dataclass(frozen=True, slots=True)
class Leader:
    """The node that decides, as this node knows it."""

    endpoint: str
    term: int


class Leadership(Protocol):
    """What the coordinator asks before it decides. Answers are only good for the moment they are given in."""

    @property
    def is_clustered(self) -> bool:
        """False: there is no election here, and decisions carry no term."""
        ...

    def term(self) -> int | None:
        """The term to stamp on a decision; None when this node does not lead. Never blocks."""
        ...

    def leader(self) -> Leader | None:
        """Who leads, this node included; None when no valid leader is known."""
        ...


class LocalLeadership:
    """A node without peers: it decides by itself, and terms play no part."""

    is_clustered = False

    def term(self) -> int | None:
        return None

    def leader(self) -> Leader | None:
        return None


def check_term(leadership: Leadership, term: int) -> None:
    """What a resource manager asks of a decision delivered to it: it must be of the leader of this very term."""
    if not leadership.is_clustered:
        return
    leader = leadership.leader()
    if leader is None:
        raise TcUnavailable("no leader is known; try again when one is elected")
    if term == 0:
        raise TcTermRequired("tc_term is required while an election runs")
    if term != leader.term:
        raise TcTermStale(f"term {term} is not the leader's term {leader.term}", leader.endpoint)
