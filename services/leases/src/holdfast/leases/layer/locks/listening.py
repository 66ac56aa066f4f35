"""Who listens to which channels, since when and from where: what people are shown of signals."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, Protocol, runtime_checkable

from holdfast.leases.layer.locks.signals import Listener

SHOWN_MAX: Final = 10
"""Listeners of a channel that are told one by one; their number is exact."""


@runtime_checkable
class Addressed(Protocol):
    """A listener that knows where its client is."""

    @property
    def address(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ListenerView:
    """A connection that takes signals."""

    address: str
    age_s: float


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A pattern, or a group of it."""

    pattern: bytes
    group: bytes
    listeners: int
    shown: tuple[ListenerView, ...]
    """The first ones, by age."""


class Listening:
    """The subscriptions of the connections of one process."""

    def __init__(self) -> None:
        self._of: dict[Listener, dict[tuple[bytes, bytes], float]] = {}

    def add(self, listener: Listener, pattern: bytes, group: bytes, now_s: float) -> None:
        self._of.setdefault(listener, {}).setdefault((pattern, group), now_s)

    def remove(self, listener: Listener, pattern: bytes, group: bytes) -> None:
        mine = self._of.get(listener, {})
        mine.pop((pattern, group), None)
        if not mine:
            self._of.pop(listener, None)

    def leave(self, listener: Listener) -> None:
        self._of.pop(listener, None)

    def views(self, prefix: bytes, now_s: float) -> list[ChannelView]:
        """Those whose pattern begins so."""
        found: dict[tuple[bytes, bytes], list[tuple[float, str]]] = {}
        for listener, mine in self._of.items():
            address = listener.address if isinstance(listener, Addressed) else ""
            for name, since_s in mine.items():
                if name[0].startswith(prefix):
                    found.setdefault(name, []).append((since_s, address))
        return [
            ChannelView(
                *name,
                len(all_),
                _shown(ListenerView(address, max(0.0, now_s - since_s)) for since_s, address in all_),
            )
            for name, all_ in found.items()
        ]


def together(views: Iterable[ChannelView]) -> list[ChannelView]:
    """Those of several processes, in the order of their patterns and groups."""
    found: dict[tuple[bytes, bytes], ChannelView] = {}
    for view in views:
        name = view.pattern, view.group
        other = found.get(name)
        if other is not None:
            shown = _shown((*other.shown, *view.shown))
            view = ChannelView(*name, other.listeners + view.listeners, shown)
        found[name] = view
    return [found[name] for name in sorted(found)]


def _shown(listeners: Iterable[ListenerView]) -> tuple[ListenerView, ...]:
    return tuple(nsmallest(SHOWN_MAX, listeners, key=lambda one: -one.age_s))
