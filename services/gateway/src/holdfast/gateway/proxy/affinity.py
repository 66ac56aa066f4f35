"""What the calls about one key or one queue have in common, so that they meet in one replica's memory."""

from pydantic_core import from_json

from holdfast.common.errors import InvalidRequest
from holdfast.common.express.message import Request


class Affinity:
    """Of the calls of one route, by the member that its declaration names.

    It is for speed alone, so nothing is refused here, and a name that cannot be found sends the call anywhere.
    """

    def __init__(self, name: str, namespace_default: str) -> None:
        self._name = name
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
