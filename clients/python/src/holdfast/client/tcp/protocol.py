"""dflockd's protocol without I/O: three lines a request, one line an answer."""

import re
from typing import Final, NamedTuple

from holdfast.client.errors import (
    ApiError,
    Forbidden,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RequestRefused,
    Throttled,
    UnexpectedAnswer,
)
from holdfast.client.locks.view import Signal
from holdfast.client.session.lease import whole_seconds

LINE_BYTES_MAX: Final = 256
ANSWER_BYTES_MAX: Final = 1 << 20
FOREVER_S: Final = 1_000_000_000
PUSH: Final = b"sig "
_REFUSALS: Final[dict[str, tuple[type[ApiError], str]]] = {
    "timeout": (LeaseHeld, "no slot became free in time"),
    "error_auth": (Forbidden, "the token is not the server's"),
    "error_max_locks": (Throttled, "the server knows as many keys as it may"),
    "error_max_waiters": (Throttled, "too many wait for this key"),
    "error_limit_mismatch": (RequestRefused, "the key has another number of slots"),
    "error_already_enqueued": (RequestRefused, "this connection has a place in the queue of the key"),
    "error_not_enqueued": (NotFound, "the place in the queue is gone"),
    "error_lease_expired": (LeaseLost, "the slot was granted, and its lease ended before it was waited for"),
}
_CODES: Final = {"timeout": "lock_timeout"}

_has_blank = re.compile(r"[ \t\r\n]").search


class Granted(NamedTuple):
    """A slot."""

    token: str
    ttl_s: int


def request(command: str, key: str = "_", argument: str = "") -> bytes:
    """Three lines; what does not fit into them is refused here."""
    lines = [command.encode(), key.encode(), argument.encode()]
    if not key or _has_blank(key) is not None:
        raise InvalidArgument("a key, channel or pattern is not empty and has no blanks and no line ends")
    if any(len(line) > LINE_BYTES_MAX or b"\n" in line or line.endswith(b"\r") for line in lines):
        raise InvalidArgument(f"a key, channel or payload has at most {LINE_BYTES_MAX} bytes, in one line")
    return b"\n".join([*lines, b""])


def lock_request(word: str, key: str, limit: int, *numbers: float | None) -> bytes:
    """`l`, `e` or `w` and its like for a semaphore; what is None is left out."""
    if limit < 1:
        raise InvalidArgument("a semaphore has at least one slot")
    named = [str(whole_seconds(number)) for number in numbers if number is not None]
    if limit == 1:
        return request(word, key, " ".join(named))
    # Behind the timeout of `sl`, first of `se`.
    place = 1 if word == "l" else 0
    return request(f"s{word}", key, " ".join([*named[:place], str(limit), *named[place:]]))


def wait_seconds(wait_s: float | None) -> float:
    if wait_s is not None and wait_s < 0:
        raise InvalidArgument("wait_s is negative; 0 does not wait, None waits for ever")
    return FOREVER_S if wait_s is None else min(wait_s, FOREVER_S)


def granted_of(answer: str) -> Granted:
    """Of `l` and `w`, or of an `e` that got a slot."""
    fields = answer.split(" ")
    if len(fields) == 3 and fields[0] in ("ok", "acquired") and fields[2].isdigit():
        return Granted(fields[1], int(fields[2][:18]))
    raise refusal(answer)


def number_of(answer: str) -> int:
    """Of `n` and `signal`."""
    status, _, number = answer.partition(" ")
    if status == "ok" and number.isdigit():
        return int(number[:18])
    raise refusal(answer)


def check_ok(answer: str) -> None:
    if answer != "ok":
        raise refusal(answer)


def refusal(answer: str) -> Exception:
    """What an answer says that is no success."""
    if answer in _REFUSALS:
        family, detail = _REFUSALS[answer]
        return family(_CODES.get(answer, answer.removeprefix("error_")), detail)
    if answer == "error":
        return RequestRefused("error", "the server does not take this request, or is about to stop")
    return UnexpectedAnswer(f"an answer that the protocol does not know: {answer[:80]!r}")


def not_held(answer: str) -> LeaseLost:
    return LeaseLost("lock_not_held", f"the token holds nothing any more: {answer[:80]}")


def signal_of(line: bytes) -> Signal:
    _, channel, payload = (*line.split(b" ", 2), b"", b"")[:3]
    return Signal(channel.decode("utf-8", "replace"), payload.decode("utf-8", "replace"))
