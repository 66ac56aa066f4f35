"""What a route says of itself to a gateway in front of it: how its answer is undone, and whether its calls are repeated."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pydantic_core import from_json, to_json

from holdfast.common.express.message import Answer, Header, Request

CALL_OFF_TARGET: Final = b"/internal/v1/call-off"
CALL_OFF: Final = b"POST %b HTTP/1.1\r\nhost: holdfast\r\ncontent-length: 0\r\n\r\n" % CALL_OFF_TARGET
"""Sent behind a request that is not answered yet: its caller has lost its client.

The service stops its work, gives back what it has not sent, and closes the connection behind the last byte that it has
sent. So the caller learns what was granted: it is in the bytes that still come, or it was given back. Closing the
connection from this side would tell neither, because an answer may be on its way.
"""


class Grants(Protocol):
    """Reads an answer on its way and knows what of it was not handed over yet."""

    def feed(self, piece: bytes) -> None:
        """The next bytes of the answer."""
        ...

    def handed_over(self) -> None:
        """The client took all that was fed so far."""
        ...

    def request(self) -> bytes | None:
        """The body of the request that undoes the rest; None when there is nothing to undo."""
        ...


class WholeGrant:
    """An answer in JSON that grants one thing and comes as a whole; of its members, `names` are what the undoing request says."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._text = b""

    def feed(self, piece: bytes) -> None:
        self._text += piece

    def handed_over(self) -> None:
        self._text = b""

    def request(self) -> bytes | None:
        if not self._text:
            return None
        granted = from_json(self._text)
        return to_json({name: granted[name] for name in self._names if name in granted})


@dataclass(frozen=True, slots=True)
class Undo:
    """An answer of 200 gives something away; a POST to `path`, a route for processes alone, takes it back."""

    path: str
    grants_of: Callable[[Sequence[Header]], Grants]
    """By the headers of the answer."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call that ends a hold does no harm when it runs twice, so it is repeated until a service has answered it."""

    first_answer: Callable[[Request, int, bytes], Answer | None] | None = None
    """What an earlier sending would have answered, by status and body of a later one; None: the later answer counts."""
