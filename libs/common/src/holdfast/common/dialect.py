"""Error dialects: how the errors of one protocol look on the wire, and which dialect speaks at which path."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from pydantic import BaseModel

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Answer


class Dialect(Protocol):
    """Turns errors into answers: those that handlers raise, and those of the server itself (404, 405, 413, 503, …)."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Where the protocol is at home (`/v1`): unknown paths there are answered in this dialect too."""
        ...

    @property
    def error_model(self) -> type[BaseModel]:
        """The body of an error, for the documentation."""
        ...

    def answer(self, error: HoldfastError) -> Answer:
        """The error as this protocol's clients know it."""
        ...


class Dialects:
    """The dialects of one app, by path."""

    def __init__(self, default: Dialect, by_path: Mapping[str, Dialect] | None = None) -> None:
        """`by_path` has the dialect of every declared route; what no prefix of theirs fits speaks the default one."""
        self._default = default
        self._by_path = dict(by_path or {})
        self._by_prefix = _by_prefix(self._by_path.values())

    def of(self, path: str) -> Dialect:
        """That of the route, or of the longest prefix above the path."""
        dialect = self._by_path.get(path)
        if dialect is not None:
            return dialect
        while path:
            if path in self._by_prefix:
                return self._by_prefix[path]
            path = path.rpartition("/")[0]
        return self._default

    def of_target(self, target: bytes) -> Dialect:
        """The same by a request target as it was sent, whole or not."""
        return self.of(target.partition(b"?")[0].decode("latin-1"))


def _by_prefix(dialects: Iterable[Dialect]) -> dict[str, Dialect]:
    found: dict[str, Dialect] = {}
    for dialect in dialects:
        for prefix in dialect.prefixes:
            if not prefix.startswith("/") or prefix.endswith("/"):
                raise ValueError(f"{prefix!r} is no prefix of paths: write /v1")
            if found.setdefault(prefix, dialect) is not dialect:
                raise ValueError(f"two error dialects claim {prefix}")
    return found
