"""Calls to other nodes of the cluster, as a port: elections, membership and decisions all go through it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Role(Enum):
    """Which certificate a call shows."""

    CLIENT = "client"
    """The TC client bundle: votes, looks, decisions."""
    SERVER = "server"
    """The server bundle, whose identity is the node's: announcing, leaving, registering."""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What a node answered: a JSON object, also when it refused."""

    status: int
    members: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def is_ok(self) -> bool:
        return self.status == 200

    def text(self, name: str) -> str:
        """A member that should be a string; empty when it is none."""
        value = self.members.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """A member that should be a whole number; 0 when it is none."""
        value = self.members.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0

    def texts(self, name: str) -> list[str]:
        """The strings of a list."""
        value = self.members.get(name)
        return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


class PeerUnreachable(Exception):
    """No answer, or none that can be read: whether the call took effect is unknown."""


class PeerPort(Protocol):
    """How a node speaks to another one."""

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Role = Role.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        """POST of `body`, or GET without one. Raises PeerUnreachable."""
        ...
