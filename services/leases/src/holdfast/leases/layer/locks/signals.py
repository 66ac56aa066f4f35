"""Signals: who listens to which channels, and who gets a payload that is sent to one.

A channel and a pattern are tokens with dots between them; in a pattern `*` stands for one token and `>`, as its last one, for one or
more. A signal goes to every plain listener, and to one member of each group, in turn. No connection gets it twice.
Nothing is kept for listeners that are not there.
"""

from collections.abc import Iterator
from typing import Final, Protocol

ONE: Final = b"*"
REST: Final = b">"


class Listener(Protocol):
    """A connection that takes signals."""

    def push(self, channel: bytes, payload: bytes) -> bool:
        """Whether it has room for it."""
        ...


class InvalidPattern(ValueError):
    """`>` stands before the end."""


class Group:
    """Members of a pattern that share its signals, in the order in which they joined."""

    __slots__ = ("members", "next")

    def __init__(self) -> None:
        self.members: list[Listener] = []
        self.next = 0

    def push(self, channel: bytes, payload: bytes, served: set[Listener]) -> Listener | None:
        """The member that took it: the one whose turn it is, unless it was served already or has no room."""
        for step in range(len(self.members)):
            at = (self.next + step) % len(self.members)
            member = self.members[at]
            if member not in served and member.push(channel, payload):
                self.next = at + 1
                return member
        return None

    def remove(self, member: Listener) -> None:
        at = self.members.index(member)
        del self.members[at]
        if at < self.next:
            self.next -= 1


class Subscriptions:
    """Those of one pattern."""

    __slots__ = ("groups", "pattern", "plain")

    def __init__(self, pattern: bytes) -> None:
        self.pattern = pattern
        self.plain: dict[Listener, None] = {}
        self.groups: dict[bytes, Group] = {}

    @property
    def is_empty(self) -> bool:
        return not self.plain and not self.groups


class _Node:
    """A token of the patterns with wildcards; patterns that begin alike share their nodes."""

    __slots__ = ("children", "subscriptions")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.subscriptions: Subscriptions | None = None


class SignalHub:
    """All subscriptions of one process."""

    def __init__(self) -> None:
        self._exact: dict[bytes, Subscriptions] = {}
        self._wild = _Node()
        self._of: dict[Listener, dict[tuple[bytes, bytes], Subscriptions]] = {}

    @property
    def listeners(self) -> int:
        """Connections that listen to anything."""
        return len(self._of)

    def subscriptions(self) -> Iterator[Subscriptions]:
        yield from self._exact.values()
        yield from _below(self._wild)

    def listen(self, listener: Listener, pattern: bytes, group: bytes = b"") -> None:
        """Twice is once."""
        mine = self._of.get(listener, {})
        if (pattern, group) in mine:
            return
        found = self._opened(pattern)
        if group:
            found.groups.setdefault(group, Group()).members.append(listener)
        else:
            found.plain[listener] = None
        self._of.setdefault(listener, mine)[pattern, group] = found

    def unlisten(self, listener: Listener, pattern: bytes, group: bytes = b"") -> None:
        mine = self._of.get(listener, {})
        found = mine.pop((pattern, group), None)
        if found is None:
            return
        self._remove(found, listener, group)
        if not mine:
            del self._of[listener]

    def leave(self, listener: Listener) -> None:
        """The connection is gone."""
        for (_, group), found in self._of.pop(listener, {}).items():
            self._remove(found, listener, group)

    def clear(self) -> None:
        """Another process has the subscriptions from now on."""
        for listener in list(self._of):
            self.leave(listener)

    def send(self, channel: bytes, payload: bytes) -> int:
        """How many connections took it."""
        served: set[Listener] = set()
        exact = self._exact.get(channel)
        if exact is not None:
            _serve(exact, channel, payload, served)
        matching = list(_matching(self._wild, channel.split(b".")))
        for found in matching:
            _serve_plain(found, channel, payload, served)
        for found in matching:
            _serve_groups(found, channel, payload, served)
        return len(served)

    def _opened(self, pattern: bytes) -> Subscriptions:
        check_pattern(pattern)
        tokens = pattern.split(b".")
        if not _is_wild(tokens):
            return self._exact.setdefault(pattern, Subscriptions(pattern))
        node = self._wild
        for token in tokens:
            node = node.children.setdefault(token, _Node())
        if node.subscriptions is None:
            node.subscriptions = Subscriptions(pattern)
        return node.subscriptions

    def _remove(self, found: Subscriptions, listener: Listener, group: bytes) -> None:
        if group:
            found.groups[group].remove(listener)
            if not found.groups[group].members:
                del found.groups[group]
        else:
            del found.plain[listener]
        if not found.is_empty:
            return
        tokens = found.pattern.split(b".")
        if _is_wild(tokens):
            _prune(self._wild, tokens)
        else:
            del self._exact[found.pattern]


def check_pattern(pattern: bytes) -> None:
    """Raises InvalidPattern."""
    if REST in pattern.split(b".")[:-1]:
        raise InvalidPattern(pattern)


def _is_wild(tokens: list[bytes]) -> bool:
    return ONE in tokens or tokens[-1] == REST


def _serve(found: Subscriptions, channel: bytes, payload: bytes, served: set[Listener]) -> None:
    _serve_plain(found, channel, payload, served)
    _serve_groups(found, channel, payload, served)


def _serve_plain(found: Subscriptions, channel: bytes, payload: bytes, served: set[Listener]) -> None:
    for listener in list(found.plain):
        if listener not in served and listener.push(channel, payload):
            served.add(listener)


def _serve_groups(found: Subscriptions, channel: bytes, payload: bytes, served: set[Listener]) -> None:
    for group in list(found.groups.values()):
        member = group.push(channel, payload, served)
        if member is not None:
            served.add(member)


def _matching(node: _Node, tokens: list[bytes]) -> Iterator[Subscriptions]:
    """The subscriptions with wildcards that a channel of these tokens matches."""
    nodes = [node]
    for token in tokens:
        if not nodes:
            return
        for each in nodes:
            rest = each.children.get(REST)
            if rest is not None and rest.subscriptions is not None:
                yield rest.subscriptions
        names = (token, ONE) if token != ONE else (ONE,)
        nodes = [each.children[name] for each in nodes for name in names if name in each.children]
    for each in nodes:
        if each.subscriptions is not None:
            yield each.subscriptions


def _below(node: _Node) -> Iterator[Subscriptions]:
    nodes = [node]
    while nodes:
        one = nodes.pop()
        if one.subscriptions is not None:
            yield one.subscriptions
        nodes += reversed(one.children.values())


def _prune(root: _Node, tokens: list[bytes]) -> None:
    """Remove what only this pattern needed."""
    path = [root]
    for token in tokens:
        path.append(path[-1].children[token])
    path[-1].subscriptions = None
    for parent, token, node in zip(reversed(path[:-1]), reversed(tokens), reversed(path[1:]), strict=True):
        if node.subscriptions is not None or node.children:
            return
        del parent.children[token]
