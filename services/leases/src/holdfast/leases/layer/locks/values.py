"""Counters, texts with an end, and lists, in memory: three kinds of keys that share one limit."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


class ValueRefused(Enum):
    MAX_KEYS = "max_keys"
    LIST_FULL = "list_full"
    OVERFLOW = "overflow"


class Kept(Generic[T]):
    """A value, when it was used last, and when it ends, if it does."""

    __slots__ = ("ends_s", "used_s", "value")

    def __init__(self, value: T, used_s: float, ends_s: float = 0.0) -> None:
        self.value = value
        self.used_s = used_s
        self.ends_s = ends_s


@dataclass(frozen=True, slots=True)
class ValueLimits:
    """Zero is no limit."""

    keys_max: int = 0
    list_items_max: int = 0


class Values:
    """Those of one process. A step with a time forgets what has ended."""

    def __init__(self, limits: ValueLimits | None = None) -> None:
        self._limits = limits or ValueLimits()
        self.counters: dict[bytes, Kept[int]] = {}
        self.texts: dict[bytes, Kept[bytes]] = {}
        self.lists: dict[bytes, Kept[deque[bytes]]] = {}
        self._first_end_s = inf
        """No text ends before it."""

    # -- counters

    def add(self, key: bytes, delta: int, now_s: float) -> int | ValueRefused:
        value = self.counter(key, now_s) + delta
        if not INT64_MIN <= value <= INT64_MAX:
            return ValueRefused.OVERFLOW
        refused = self.set_counter(key, value, now_s)
        return value if refused is None else refused

    def counter(self, key: bytes, now_s: float) -> int:
        kept = self.counters.get(key)
        if kept is None:
            return 0
        kept.used_s = now_s
        return kept.value

    def set_counter(self, key: bytes, value: int, now_s: float) -> ValueRefused | None:
        if key not in self.counters and self._is_full(now_s):
            return ValueRefused.MAX_KEYS
        self.counters[key] = Kept(value, now_s)
        return None

    # -- texts

    def put(self, key: bytes, text: bytes, ttl_s: int, now_s: float) -> ValueRefused | None:
        """`ttl_s` 0: it does not end."""
        if self.get(key, now_s) is None and self._is_full(now_s):
            return ValueRefused.MAX_KEYS
        self.texts[key] = Kept(text, now_s, now_s + ttl_s if ttl_s else 0.0)
        if ttl_s:
            self._first_end_s = min(self._first_end_s, now_s + ttl_s)
        return None

    def get(self, key: bytes, now_s: float) -> bytes | None:
        kept = self.texts.get(key)
        if kept is None:
            return None
        if kept.ends_s and kept.ends_s <= now_s:
            del self.texts[key]
            return None
        kept.used_s = now_s
        return kept.value

    def delete(self, key: bytes) -> None:
        self.texts.pop(key, None)

    # -- lists

    def push(self, key: bytes, item: bytes, now_s: float, *, is_left: bool) -> int | ValueRefused:
        """How long the list is now."""
        kept = self.lists.get(key)
        if kept is None:
            if self._is_full(now_s):
                return ValueRefused.MAX_KEYS
            kept = self.lists[key] = Kept(deque(), now_s)
        items = kept.value
        if len(items) >= self._limits.list_items_max > 0:
            return ValueRefused.LIST_FULL
        if is_left:
            items.appendleft(item)
        else:
            items.append(item)
        kept.used_s = now_s
        return len(items)

    def pop(self, key: bytes, now_s: float, *, is_left: bool) -> bytes | None:
        kept = self.lists.get(key)
        if kept is None:
            return None
        kept.used_s = now_s
        item = kept.value.popleft() if is_left else kept.value.pop()
        if not kept.value:
            del self.lists[key]
        return item

    def length(self, key: bytes, now_s: float) -> int:
        kept = self.lists.get(key)
        if kept is None:
            return 0
        kept.used_s = now_s
        return len(kept.value)

    def items(self, key: bytes, start: int, stop: int, now_s: float) -> list[bytes]:
        """Both ends included; what is negative counts from the end."""
        kept = self.lists.get(key)
        if kept is None:
            return []
        kept.used_s = now_s
        size = len(kept.value)
        first = max(start + size if start < 0 else start, 0)
        last = min(stop + size if stop < 0 else stop, size - 1)
        return list(kept.value)[first : last + 1] if first <= last else []

    # -- time

    def forget(self, now_s: float, idle_s: float) -> int:
        """Forget texts that have ended, and counters of zero that were not used so long; how many."""
        ended = self._forget_ended(now_s)
        idle = [key for key, kept in self.counters.items() if not kept.value and now_s - kept.used_s > idle_s]
        for key in idle:
            del self.counters[key]
        return ended + len(idle)

    def _forget_ended(self, now_s: float) -> int:
        ended = [key for key, kept in self.texts.items() if kept.ends_s and kept.ends_s <= now_s]
        for key in ended:
            del self.texts[key]
        self._first_end_s = min((kept.ends_s for kept in self.texts.values() if kept.ends_s), default=inf)
        return len(ended)

    def keep(self, is_kept: Callable[[bytes], bool]) -> None:
        """Forget every key but these."""
        for kind in (self.counters, self.texts, self.lists):
            for key in [key for key in kind if not is_kept(key)]:
                del kind[key]

    def _is_full(self, now_s: float) -> bool:
        """Texts that have ended do not count."""
        if not self._has_all_keys:
            return False
        if self._first_end_s <= now_s:
            self._forget_ended(now_s)
        return self._has_all_keys

    @property
    def _has_all_keys(self) -> bool:
        keys = len(self.counters) + len(self.texts) + len(self.lists)
        return keys >= self._limits.keys_max > 0


ValueResult: TypeAlias = int | bytes | list[bytes] | ValueRefused | None
_Step: TypeAlias = Callable[..., ValueResult]


def _add(values: Values, now_s: float, key: bytes, delta: int) -> ValueResult:
    return values.add(key, delta, now_s)


def _counter(values: Values, now_s: float, key: bytes) -> ValueResult:
    return values.counter(key, now_s)


def _set_counter(values: Values, now_s: float, key: bytes, value: int) -> ValueResult:
    return values.set_counter(key, value, now_s)


def _put(values: Values, now_s: float, key: bytes, text: bytes, ttl_s: int) -> ValueResult:
    return values.put(key, text, ttl_s, now_s)


def _get(values: Values, now_s: float, key: bytes) -> ValueResult:
    return values.get(key, now_s)


def _delete(values: Values, now_s: float, key: bytes) -> ValueResult:
    values.delete(key)
    return None


def _push(values: Values, now_s: float, key: bytes, item: bytes, is_left: bool) -> ValueResult:
    return values.push(key, item, now_s, is_left=is_left)


def _pop(values: Values, now_s: float, key: bytes, is_left: bool) -> ValueResult:
    return values.pop(key, now_s, is_left=is_left)


def _length(values: Values, now_s: float, key: bytes) -> ValueResult:
    return values.length(key, now_s)


def _items(values: Values, now_s: float, key: bytes, start: int, stop: int) -> ValueResult:
    return values.items(key, start, stop, now_s)


STEPS: Final[Mapping[str, _Step]] = {
    "add": _add,
    "counter": _counter,
    "set_counter": _set_counter,
    "put": _put,
    "get": _get,
    "delete": _delete,
    "push": _push,
    "pop": _pop,
    "length": _length,
    "items": _items,
}
"""What is done to a value, by a name that another process knows too."""
