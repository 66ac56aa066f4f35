"""Which service a path belongs to, what its calls have in common, and which of them may be sent twice."""

from typing import Final

from pydantic_core import from_json

from holdfast.common.errors import InvalidRequest
from holdfast.common.express.message import Request
from holdfast.common.role import Role

# The longest prefix that fits wins; what no prefix fits belongs to state.
_SERVICES: Final = {
    "/v1/acquire": Role.LEASES,
    "/v1/keepalive": Role.LEASES,
    "/v1/release": Role.LEASES,
    "/v1/describe": Role.LEASES,
    "/v1/queue/": Role.QUEUE,
    "/enqueue": Role.QUEUE,
    "/dequeue": Role.QUEUE,
    "/ack": Role.QUEUE,
    "/nack": Role.QUEUE,
    "/v1/txn/": Role.TXN,
    "/v1/tc/": Role.TXN,
}

# What names the thing a call is about, besides its namespace.
_NAMES: Final = {Role.LEASES: "key", Role.STATE: "key", Role.QUEUE: "queue", Role.TXN: "txn_id"}

_REPEATABLE: Final = frozenset(
    {
        "/v1/get",
        "/v1/keepalive",
        "/v1/keepalive/batch",
        "/v1/query",
        "/v1/queue/dlq/list",
        "/v1/queue/peek",
        "/v1/queue/stats",
    }
)

_WAITING: Final = frozenset(
    {
        "/v1/acquire",
        "/v1/query",
        "/v1/queue/dequeue",
        "/v1/queue/dequeueBatch",
        "/v1/queue/dequeueWithState",
        "/v1/queue/subscribe",
        "/v1/queue/subscribeWithState",
        "/v1/queue/watch",
        "/dequeue",
        "/v3/watch",
    }
)


_ENDLESS: Final = frozenset(
    {"/v1/queue/subscribe", "/v1/queue/subscribeWithState", "/v1/queue/watch", "/v3/watch"}
)


def service_of(path: str) -> Role:
    """The service that answers a path."""
    fitting = [prefix for prefix in _SERVICES if path.startswith(prefix)]
    return _SERVICES[max(fitting, key=len)] if fitting else Role.STATE


def is_repeatable(path: str, method: str) -> bool:
    """Whether a second sending does no harm. Transactions take every method for the same thing, so GET says nothing."""
    return path in _REPEATABLE or (method in ("GET", "HEAD") and service_of(path) is not Role.TXN)


def may_wait(path: str) -> bool:
    """Whether the answer may take as long as the client likes: then only the service knows when it is too late."""
    return path in _WAITING


def is_endless(path: str) -> bool:
    """Whether its streams go on until the client goes away."""
    return path in _ENDLESS


class Affinity:
    """What the calls about one key or one queue have in common, so that they meet in one replica's memory.

    It is for speed alone, so nothing is refused here, and a name that cannot be found sends the call anywhere.
    """

    def __init__(self, service: Role, namespace_default: str) -> None:
        self._name = _NAMES[service]
        self._namespace_default = namespace_default

    def of(self, request: Request) -> bytes:
        try:
            name, namespace = request.query(self._name), request.query("namespace")
        except InvalidRequest:
            return b""  # The service says what is wrong with the query.
        if not name or not namespace:
            members = _members(request.body)
            name = name or _text(members.get(self._name))
            namespace = namespace or _text(members.get("namespace")) or self._namespace_default
        return _affinity(namespace, name)

    def of_members(self, members: object) -> bytes:
        """The same for one of many that a request names in its body."""
        named: dict[str, object] = members if isinstance(members, dict) else {}
        return _affinity(
            _text(named.get("namespace")) or self._namespace_default, _text(named.get(self._name))
        )


def _affinity(namespace: str, name: str) -> bytes:
    return f"{namespace}\0{name}".encode("utf-8", "replace") if name else b""


def _members(body: bytes) -> dict[str, object]:
    if not body.startswith(b"{"):
        return {}
    try:
        members: dict[str, object] = from_json(body)
    except ValueError:
        return {}
    return members


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
