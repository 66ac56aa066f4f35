"""Who of this node's connections listens to what, to say it again when another node has the hub of signals."""

from collections.abc import Iterator

from holdfast.leases.layer.locks.signals import Listener


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
