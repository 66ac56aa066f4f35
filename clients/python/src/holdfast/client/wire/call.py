"""A request before it is sent and an answer after it was read: plain values, so that both twins share the rest."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import httpx

from holdfast.client.errors import ApiError, UnexpectedAnswer, api_error
from holdfast.client.wire.body import Body
from holdfast.client.wire.endpoint import Endpoint
from holdfast.client.wire.hang_up import Connected

T = TypeVar("T")

Pool = Literal["call", "wait", "keepalive", "stream"]

_TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
_INT64_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class Call:
    """One request, for both twins. Waiting calls and keepalives have pools of their own: none blocks another."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: Body | None = None
    pool: Pool = "call"
    timeout_s: float | None = None
    """For each step of the exchange; None is the client's own."""
    is_endless: bool = False
    """The answer may take for ever."""
    answer_bytes_max: int = 64 * 1024 * 1024
    is_stream: bool = False
    """A 200 stays open for the caller to read."""
    is_idempotent: bool = False
    """May be sent again on a fresh connection when a pooled one turned out to be dead."""
    is_sent_once: bool = False
    """May not be sent again, not even to another endpoint, when an attempt may have reached a server."""
    on_connected: Callable[[Connected], None] | None = None
    """Told the socket of a call in the `stream` pool, so that a read that waits for ever can be ended."""


@dataclass(slots=True)
class Answer:
    """What came back; `response` is the open answer of a stream."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    response: httpx.Response | None = None
    endpoint: Endpoint | None = None
    sent_at_s: float = 0.0
    """Monotonic time at which the request left: a lease lasts from here at the least."""
    queued_s: float = 0.0
    """How long the request waited here for its turn before it left."""
    may_be_a_repeat: bool = False
    """An earlier attempt of this call may have reached a server without its answer reaching us."""

    @property
    def is_shutdown_imminent(self) -> bool:
        return self.headers.get("shutdown-imminent", "").strip().lower() in _TRUE_WORDS

    @property
    def is_passive(self) -> bool:
        """Another endpoint should be asked: this one is not the active node, or something in front of it is down."""
        if self.status != 503:
            return False
        return not self.body.strip() or self.error().code == "node_passive"

    @property
    def key_version(self) -> int | None:
        return integer_of(self.headers.get("x-key-version"))

    @property
    def fencing_token(self) -> int | None:
        return integer_of(self.headers.get("x-fencing-token"))

    @property
    def etag(self) -> str:
        return self.headers.get("etag", "").strip().strip('"')

    def error(self) -> ApiError:
        return api_error(self.status, self.headers, self.body)

    def expect(self, *statuses: int) -> "Answer":
        """This answer if it has one of these statuses, else its error."""
        if self.status in statuses:
            return self
        if self.status >= 400:
            raise self.error()
        raise UnexpectedAnswer(f"status {self.status} where {' or '.join(map(str, statuses))} was expected")

    def members(self) -> "Members":
        """The JSON object in the body."""
        try:
            decoded = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswer(f"status {self.status} with a body that is no JSON") from error
        if not isinstance(decoded, dict):
            raise UnexpectedAnswer(f"status {self.status} with a body that is no JSON object")
        return Members(decoded)


class Members:
    """A JSON object of the server, read with the types that the protocol promises; absent is zero."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.raw = members

    def text(self, name: str, *, is_required: bool = False) -> str:
        value = self.raw.get(name)
        if isinstance(value, str) and (value or not is_required):
            return value
        return self._absent(name, value, "", is_required=is_required)

    def number(self, name: str, *, is_required: bool = False) -> int:
        value = self.raw.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _INT64_MAX:
            return self._absent(name, value, 0, is_required=is_required)
        if is_required and value == 0:
            return self._absent(name, value, 0, is_required=is_required)
        return value

    def boolean(self, name: str) -> bool:
        return self.raw.get(name) is True

    def inner(self, name: str) -> "Members":
        value = self.raw.get(name)
        return Members(value) if isinstance(value, dict) else self._absent(name, value, Members({}))

    def items(self, name: str) -> list["Members"]:
        value = self.raw.get(name)
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return [Members(item) for item in value]
        return self._absent(name, value, [])

    def _absent(self, name: str, value: object, zero: T, *, is_required: bool = False) -> T:
        if is_required or value is not None:
            raise UnexpectedAnswer(f"an answer with a missing or broken member {name!r}")
        return zero


def integer_of(text: str | None) -> int | None:
    """A decimal int64 of a header, or None."""
    if text is None or len(text) > 20:
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    return value if 0 <= value <= _INT64_MAX else None
