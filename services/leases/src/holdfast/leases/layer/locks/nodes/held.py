"""What clients of this node hold at other ones: to end their connections when it is lost, or to give it back when they are gone."""

from typing import Final

from holdfast.leases.layer.locks.nodes.link import NodeLink
from holdfast.leases.layer.locks.records import Grant, Outcome, Session

HELD_MAX: Final = 10_000
"""Of one client; of more, the oldest have to end with their leases."""
_QUEUED: Final = b""
"""In place of a token: a place in a queue, which may become a slot without a word."""


class Held:
    """By client: keys and tokens, each with the node where it was got; None: here, when this node was home."""

    def __init__(self) -> None:
        self._of: dict[Session, dict[tuple[bytes, bytes], NodeLink | None]] = {}

    def granted(self, session: Session, key: bytes, outcome: Outcome, link: NodeLink | None) -> None:
        """An acquire or an enqueue came to this."""
        if isinstance(outcome, Grant):
            self.add(session, key, outcome.token, link)
        elif outcome is None:
            self.add(session, key, _QUEUED, link)

    def waited(self, session: Session, key: bytes, outcome: Outcome, link: NodeLink | None) -> None:
        """A wait came to this; it ends what an enqueue began."""
        self.remove(session, key, _QUEUED)
        self.granted(session, key, outcome, link)

    def add(self, session: Session, key: bytes, token: bytes, link: NodeLink | None) -> None:
        held = self._of.setdefault(session, {})
        held[key, token] = link
        if len(held) > HELD_MAX:
            del held[next(iter(held))]

    def remove(self, session: Session, key: bytes, token: bytes) -> None:
        held = self._of.get(session)
        if held is not None:
            held.pop((key, token), None)

    def has(self, session: Session, link: NodeLink) -> bool:
        """Whether it has anything there."""
        return link in self._of.get(session, {}).values()

    def pop(self, session: Session) -> list[tuple[bytes, bytes]]:
        """Its keys and tokens; nothing is known of it any more."""
        return [(key, token) for key, token in self._of.pop(session, {}) if token != _QUEUED]
