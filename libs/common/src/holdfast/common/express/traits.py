"""What a route says of itself to those who serve, admit, guard or proxy it: declared once, beside its handler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Protocol, TypedDict

from holdfast.common.dialect import Dialect
from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import METHODS, Answer, Header, Request
from holdfast.common.role import Role
from holdfast.common.security.principal import Permission, Principal
from holdfast.common.wire_errors import LOCKD

READS: Final = frozenset({"GET", "HEAD"})
ALL_METHODS: Final = METHODS
NO_METHODS: Final[frozenset[str]] = frozenset()


class Group(StrEnum):
    """Requests that back-pressure holds back together."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ACK = "ack"
    LOCK = "lock"
    QUERY = "query"


class Begins(Enum):
    """Whether a request begins work, so that refusing it wastes nothing, or goes on with work admitted before."""

    ALWAYS = "always"
    IF_PUBLIC = "if public"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Admission:
    """How back-pressure treats the requests of a route; a route without one is never held back."""

    group: Group
    begins: Begins = Begins.NEVER
    wait_s: Callable[[Request], int | None] | None = None
    """The seconds that the caller asks to wait at most, None for none; ValueError when the body is not valid."""


Prove = Callable[[Request], Principal]
"""Who makes a request, by a proof of the protocol's own such as a token; refuses it by raising a HoldfastError."""


class Duration(Enum):
    """How long an answer may take."""

    SHORT = "short"
    """As long as the store takes; a gateway gives up after a minute."""
    LONG = "long"
    """It works all the time and comes to an end; only the service knows when it is too late."""
    WAITING = "waiting"
    """It waits for something to happen, as long as the client likes; a gateway ends it when it drains."""
    ENDLESS = "endless"
    """A stream that goes on until the client goes away; a gateway ends it when it drains."""

    @property
    def has_deadline(self) -> bool:
        return self is Duration.SHORT

    @property
    def ends_with_drain(self) -> bool:
        return self in (Duration.WAITING, Duration.ENDLESS)


class Division(Protocol):
    """How a batch is divided between the replicas that know its items, and how their results are joined."""

    def items(self, body: bytes) -> Sequence[object] | None:
        """The items of a batch; None if it is none, which the service then says."""
        ...

    def body(self, items: Sequence[object]) -> bytes:
        """A batch of these items alone."""
        ...

    def results(self, status: int, body: bytes, count: int) -> Sequence[object] | None:
        """One result for each of `count` items in what a replica answered; None if they are not there."""
        ...

    def refused(self, error: HoldfastError) -> object:
        """The result of an item whose replica could not be asked."""
        ...

    def answer(self, results: Sequence[object], headers: Sequence[Header]) -> Answer:
        """All results in the order of their items."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The traits of one route; a router has those that its routes share."""

    service: Role | None = None
    """Whose process serves it when services run on their own."""
    admission: Admission | None = None
    affinity: str | None = None
    """The member of query or body that names what a call is about: such calls meet in one replica's memory."""
    repeatable: frozenset[str] = READS
    """The methods whose requests do no harm when they arrive twice."""
    duration: Duration = Duration.SHORT
    permission: Permission = Permission.CLIENT
    """What the principal of a request must be allowed to do."""
    identify: Prove | None = None
    """How callers prove who they are, if not by the certificate of their connection alone. It runs in the process that
    clients talk to, which tells the service behind it."""
    dialect: Dialect = LOCKD
    """How its errors look."""
    divide: Division | None = None
    streams_lines: bool = False
    """Each line of its stream is a chunk of its own, wherever it comes by: clients parse one chunk at a time."""


class TraitChanges(TypedDict, total=False):
    """Traits as keywords, for those that differ from the defaults."""

    service: Role | None
    admission: Admission | None
    affinity: str | None
    repeatable: frozenset[str]
    duration: Duration
    permission: Permission
    identify: Prove | None
    dialect: Dialect
    divide: Division | None
    streams_lines: bool


DEFAULT_TRAITS: Final = Traits()
