"""Signals over several nodes: all subscriptions are at the home of the hub, so that a group is one group, and a connection gets a signal
once. When the hub gets another home, every node says there what its connections listen to.

What the hub has counted is not dropped: a signal for a connection that has no room is kept here, and the hub is told that the connection
is full, so that it gets no more and another member of its group does, until there is room again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.leases.layer.locks.records import Outcome, Pending, Refused, Tell
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.layer.locks.signals import Listener, check_pattern
from holdfast.leases.nodes.link import NodeLink

HUB: Final = b"\0signals"
"""What the home of the hub is found by, as that of a key."""
ROOM_LOOK_S: Final = 0.05
"""How often it is looked whether a connection that was full has room."""


class NodeSignals:
    """Of the connections of this node. `home` tells where the hub is: here, behind a link, or nowhere now."""

    def __init__(self, local: LockService, home: Callable[[], LockService | NodeLink | None]) -> None:
        self._local = local
        self._home = home
        self._subscriptions = Subscriptions()
        self._said_to: LockService | NodeLink | None = None
        self._kept: dict[int, deque[tuple[bytes, bytes]]] = {}
        """Signals for connections that are full: those that were on their way when the hub was told so."""
        self._said_full: set[int] = set()
        self._look_timer: asyncio.TimerHandle | None = None

    def listen(self, listener: Listener, pattern: bytes, group: bytes, tell: Tell) -> Outcome | Pending:
        check_pattern(pattern)
        home = self._home()
        number = self._subscriptions.add(listener, pattern, group)
        if isinstance(home, LockService):
            return home.listen(listener, pattern, group, tell)

        def told(outcome: Outcome) -> None:
            if outcome is not True:
                self._subscriptions.remove(listener, pattern, group)
            tell(outcome)

        found = call(home, "listen", number, pattern, group, tell=told)
        if not isinstance(found, Pending):
            self._subscriptions.remove(listener, pattern, group)
        return found

    def unlisten(self, listener: Listener, pattern: bytes, group: bytes, tell: Tell) -> Outcome | Pending:
        home = self._home()
        number = self._subscriptions.remove(listener, pattern, group)
        if isinstance(home, LockService):
            return home.unlisten(listener, pattern, group, tell)
        return True if number is None else call(home, "unlisten", number, pattern, group, tell=tell)

    def leave(self, listener: Listener) -> None:
        number = self._subscriptions.leave(listener)
        if number is None:
            return
        self._kept.pop(number, None)
        self._said_full.discard(number)
        home = self._home()
        if isinstance(home, NodeLink):
            home.say("leave", number)
        self._local.leave(listener)

    def signal(self, channel: bytes, payload: bytes, tell: Tell) -> Outcome | Pending:
        home = self._home()
        if isinstance(home, LockService):
            return home.signal(channel, payload, tell)
        return call(home, "signal", channel, payload, tell=tell)

    def push(self, number: int, channel: bytes, payload: bytes) -> None:
        """The hub has a signal for a connection of this node."""
        listener = self._subscriptions.listeners.get(number)
        if listener is None:
            return
        kept = self._kept.get(number)
        if kept is None and listener.push(channel, payload):
            return
        self._kept.setdefault(number, deque()).append((channel, payload))
        if number not in self._said_full:
            self._said_full.add(number)
            self._tell_home("full", number)
        if self._look_timer is None:
            self._look_timer = asyncio.get_running_loop().call_later(ROOM_LOOK_S, self._look_for_room)

    def _look_for_room(self) -> None:
        self._look_timer = None
        for number, kept in list(self._kept.items()):
            push = self._subscriptions.listeners[number].push
            while kept and push(*kept[0]):
                kept.popleft()
            if not kept:
                del self._kept[number]
                self._said_full.discard(number)
                self._tell_home("room", number)
        if self._kept:
            self._look_timer = asyncio.get_running_loop().call_later(ROOM_LOOK_S, self._look_for_room)

    def _tell_home(self, kind: str, number: int) -> None:
        home = self._home()
        if isinstance(home, NodeLink):
            home.say(kind, number)

    def look(self) -> None:
        """The hub may have got another home."""
        if self._home() is not self._said_to:
            self._local.signals.clear()
            self._say()

    def link_is_open(self, link: NodeLink) -> None:
        if self._home() is link:
            self._say()

    def _say(self) -> None:
        """Every subscription of this node, in the order in which they came."""
        home = self._said_to = self._home()
        self._said_full.clear()  # The new hub has not heard of it.
        for number, pattern, group in self._subscriptions:
            if isinstance(home, LockService):
                home.listen(self._subscriptions.listeners[number], pattern, group, ignore)
            elif home is not None:
                home.call("listen", number, pattern, group, tell=ignore)


def call(link: NodeLink | None, kind: str, *fields: object, tell: Tell) -> Outcome | Pending:
    """Ask the other node, if there is a way."""
    return Refused.UNAVAILABLE if link is None else link.call(kind, *fields, tell=tell)


def ignore(outcome: Outcome) -> None:
    """No client waits for the answer."""


class Subscriptions:
    """In the order in which they came. Listeners have numbers, by which other nodes know them."""

    def __init__(self) -> None:
        self.listeners: dict[int, Listener] = {}
        self._numbers: dict[Listener, int] = {}
        self._all: dict[tuple[int, bytes, bytes], None] = {}
        self._of: dict[int, set[tuple[bytes, bytes]]] = {}
        self._last = 0

    def __iter__(self) -> Iterator[tuple[int, bytes, bytes]]:
        return iter(list(self._all))

    def add(self, listener: Listener, pattern: bytes, group: bytes) -> int:
        number = self._numbers.get(listener)
        if number is None:
            self._last += 1
            number = self._numbers[listener] = self._last
            self.listeners[number] = listener
        self._all[number, pattern, group] = None
        self._of.setdefault(number, set()).add((pattern, group))
        return number

    def remove(self, listener: Listener, pattern: bytes, group: bytes) -> int | None:
        """Its number, if it is known."""
        number = self._numbers.get(listener)
        if number is not None:
            self._all.pop((number, pattern, group), None)
            self._of[number].discard((pattern, group))
        return number

    def leave(self, listener: Listener) -> int | None:
        number = self._numbers.pop(listener, None)
        if number is None:
            return None
        del self.listeners[number]
        for pattern, group in self._of.pop(number):
            self._all.pop((number, pattern, group), None)
        return number
