"""What can go wrong for a client: one class per family of codes, each with everything the answer said.

ClientError
├── InvalidArgument       the call was wrong before anything was sent
├── ClientClosed          the client was closed before or meanwhile
├── TransportFailed       no answer: refused, broken, too slow
│   └── TransportTimedOut
├── UnexpectedAnswer      an answer that the protocol does not know
└── ApiError              an error answer
    ├── RequestRefused    400, 405, 412, 431: wrong input; 409 limit_mismatch: a semaphore with other slots
    │   └── Compacted     410, or etcd's way to say it: the history does not go back that far
    ├── LeaseLost         403: this lease or token does not hold the key (any more); 409: nor the message
    ├── Forbidden         403 otherwise
    ├── NotFound          404
    ├── LeaseHeld         409 waiting, lock_held, lock_timeout: another holder has the key
    ├── QueueEmpty        409 waiting: no message can be had
    ├── AlreadyExists     409: create-only, and the key exists
    ├── CasMismatch       409: version, ETag or checksum differs
    ├── TxnConflict       409: another transaction is in the way
    ├── TooLarge          413
    ├── Throttled         429
    ├── Unavailable       503: draining, passive, not ready
    └── ServerFailed      other 5xx
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final


class ClientError(Exception):
    """Base of everything this client raises by itself."""


class InvalidArgument(ClientError, ValueError):
    """The call was wrong before anything was sent; the text says what to change."""


class ClientClosed(ClientError):
    """The client is closed, so nothing is sent any more."""


class TransportFailed(ClientError):
    """No endpoint gave an answer. `is_sent` is false when the request cannot have reached a server."""

    def __init__(self, detail: str, *, is_sent: bool = True) -> None:
        super().__init__(detail)
        self.is_sent = is_sent


class TransportTimedOut(TransportFailed):
    """An endpoint did not answer in time."""


class UnexpectedAnswer(ClientError):
    """A success that does not look like one: wrong status, no JSON, a missing or broken member."""


class ApiError(ClientError):
    """An error answer. `code` is what to switch on; `detail` is for people."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        status: int = 0,
        retry_after_s: float | None = None,
        current_version: int = 0,
        current_etag: str = "",
        qrf_state: str = "",
        leader_endpoint: str = "",
        correlation_id: str = "",
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        self.status = status
        self.retry_after_s = retry_after_s
        self.current_version = current_version
        self.current_etag = current_etag
        self.qrf_state = qrf_state
        self.leader_endpoint = leader_endpoint
        self.correlation_id = correlation_id

    def __str__(self) -> str:
        name = self.code or f"status {self.status}"
        return f"{name} ({self.detail})" if self.detail else name


class RequestRefused(ApiError):
    """The server does not take this input."""


class Compacted(RequestRefused):
    """This revision, of the key space or of a watch, was forgotten. A watch that was open tells with `compact_revision` the
    first one that is left."""

    compact_revision: int = 0


class LeaseLost(ApiError):
    """The lease is gone: expired, released, or taken over with a higher fencing token."""


class Forbidden(ApiError):
    """The server knows who this is and says no."""


class NotFound(ApiError):
    """There is no such thing, or none that this caller may see."""


class LeaseHeld(ApiError):
    """Another holder has the key; `retry_after_s` says how long at most, as of now."""


class QueueEmpty(ApiError):
    """No message could be had in the time given."""


class AlreadyExists(ApiError):
    """The key exists, and it was to be created."""


class CasMismatch(ApiError):
    """The key is not at the version or ETag that was expected, or the body not what was announced."""


class TxnConflict(ApiError):
    """The transaction is another one or over, or its decision is still open."""


class TooLarge(ApiError):
    """The document or attachment is above its limit."""


class Throttled(ApiError):
    """The server is busy and asks to come back in `retry_after_s`; `qrf_state` says how busy."""


class Unavailable(ApiError):
    """This server can't do it now: draining, passive, or not ready."""


class ServerFailed(ApiError):
    """The server failed; its log knows more under the correlation id."""


_BY_CODE: Final[Mapping[str, type[ApiError]]] = {
    "lease_required": LeaseLost,
    "lease_expired": LeaseLost,
    "fencing_mismatch": LeaseLost,
    "queue_message_lease_mismatch": LeaseLost,
    "lock_not_held": LeaseLost,
    "waiting": LeaseHeld,
    "lock_held": LeaseHeld,
    "lock_timeout": LeaseHeld,
    "limit_mismatch": RequestRefused,
    "already_exists": AlreadyExists,
    "txn_mismatch": TxnConflict,
    "txn_pending": TxnConflict,
    "txn_conflict": TxnConflict,
    "etcdserver: mvcc: required revision has been compacted": Compacted,
    "etcdserver: lease already exists": AlreadyExists,
}
_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: CasMismatch,
    410: Compacted,
    413: TooLarge,
    429: Throttled,
    503: Unavailable,
}
_TEXT_CHARS_MAX: Final = 2000


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The typed error of an answer; one without an envelope has an empty code."""
    return _typed(status, headers, _envelope(body))


def error_among_many(envelope: Mapping[str, Any], headers: Mapping[str, str]) -> ApiError:
    """The typed error of one result among many, which has the envelope and the status of an answer of its own."""
    correlation = {name: value for name, value in headers.items() if name == "x-correlation-id"}
    return _typed(_number(envelope, "status"), correlation, envelope)


def _typed(status: int, headers: Mapping[str, str], envelope: Mapping[str, Any]) -> ApiError:
    code = _text(envelope, "error") or _text(envelope, "message")  # As etcd says it from 3.6 on.
    family = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if family is None:
        family = ServerFailed if status >= 500 else RequestRefused
    return family(
        code,
        _text(envelope, "detail"),
        status=status,
        retry_after_s=retry_after_s(headers, envelope),
        current_version=_number(envelope, "current_version"),
        current_etag=_text(envelope, "current_etag"),
        qrf_state=headers.get("x-lockd-qrf-state", "").strip().lower(),
        leader_endpoint=_text(envelope, "leader_endpoint"),
        correlation_id=headers.get("x-correlation-id", ""),
    )


def typed_error(status: int, code: str) -> ApiError:
    """The typed error of a status and a code that stand within an answer."""
    return _typed(status, {}, {"error": code})


def error_of(code: str, detail: str) -> ApiError:
    """The typed error of one result among many, which has a code and no status."""
    family = _BY_CODE.get(code) or {"not_found": NotFound, "cas_mismatch": CasMismatch}.get(
        code, RequestRefused
    )
    return family(code, detail)


def retry_after_s(headers: Mapping[str, str], envelope: Mapping[str, Any]) -> float | None:
    """Seconds from the header (a number, fractions allowed, or a date), else from the body; None if neither."""
    text = headers.get("retry-after", "").strip()
    seconds = _seconds(text) if text else None
    if seconds is None:
        seconds = float(_number(envelope, "retry_after_seconds"))
    return seconds if seconds > 0 else None


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return _seconds_until(text)
    return seconds if 0 <= seconds < float("inf") else None


def _seconds_until(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _envelope(body: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _text(envelope: Mapping[str, Any], name: str) -> str:
    value = envelope.get(name)
    return value[:_TEXT_CHARS_MAX] if isinstance(value, str) else ""


def _number(envelope: Mapping[str, Any], name: str) -> int:
    value = envelope.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        return 0
    return value
