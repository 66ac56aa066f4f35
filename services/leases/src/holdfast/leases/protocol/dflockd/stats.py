"""The answer to `stats`: what is held, waited for, idle and listened to, as one line of JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import Any, Final

from holdfast.leases.layer.locks.records import Lock
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.layer.locks.values import Kept

ENTRIES_BYTES_MAX: Final = 64_000
"""Clients read no line above 65,536 bytes. The rest is for the names of the members."""
_OMITTED: Final = "omitted"
"""So many entries found no room. It is not there otherwise: dflockd has no such member, and its clients do not look at it."""
_MEMBERS: Final = (
    "locks",
    "semaphores",
    "idle_locks",
    "idle_semaphores",
    "counters",
    "kv_entries",
    "lists",
    "signal_channels",
)
_FIRST: Final = ("locks", "semaphores", "signal_channels", "counters", "kv_entries", "lists", *_MEMBERS[2:4])
"""Who gets the room first."""

_Kind = tuple[Iterable[Any], Callable[[Any], dict[str, Any]]]
"""What there is, and what is told of each."""


def merged(figures: Sequence[bytes]) -> bytes:
    """The answer, from the figures of all processes."""
    members: dict[str, Any] = {}
    for text in figures:
        for name, value in json.loads(text).items():
            members[name] = members[name] + value if name in members else value
    if len(figures) > 1:
        kinds: dict[str, _Kind] = {name: (members[name], dict) for name in _MEMBERS}
        members = _fitting(members["connections"], kinds, members.get(_OMITTED, 0))
    members["signal_channels"] = members["signal_channels"] or None
    return _dumped(members)


def _dumped(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _fitting(connections: int, kinds: dict[str, _Kind], omitted: int = 0) -> dict[str, Any]:
    """All members, with as many entries as there is room for. What finds none is only counted, so the work has an end, too."""
    left_bytes = ENTRIES_BYTES_MAX
    listed: dict[str, list[dict[str, Any]]] = {name: [] for name in _MEMBERS}
    for name in _FIRST:
        things, told = kinds[name]
        for thing in things:
            if left_bytes > 0:
                entry = told(thing)
                left_bytes -= len(_dumped(entry)) + 1
                if left_bytes > 0:
                    listed[name].append(entry)
                    continue
            omitted += 1
    return {"connections": connections, **listed, **({_OMITTED: omitted} if omitted else {})}


def figures(service: LockService, connections: int) -> bytes:
    """What this process has."""
    now_s = service.now_s()
    locks, values = list(service.table.locks), service.values
    used = [lock for lock in locks if not _is_idle(lock)]
    idle = [lock for lock in locks if _is_idle(lock)]
    kinds: dict[str, _Kind] = {
        "locks": (filter(_is_lock, used), lambda lock: _lock(lock, now_s)),
        "semaphores": (filterfalse(_is_lock, used), _semaphore),
        "idle_locks": (filter(_is_lock, idle), lambda lock: _idle(lock, now_s)),
        "idle_semaphores": (filterfalse(_is_lock, idle), lambda lock: _idle(lock, now_s)),
        "counters": (
            values.counters.items(),
            lambda one: {"key": _text(one[0]), "value": one[1].value, "idle_s": now_s - one[1].used_s},
        ),
        "kv_entries": (
            (one for one in values.texts.items() if not one[1].ends_s or one[1].ends_s > now_s),
            lambda one: _entry(one[0], one[1], now_s),
        ),
        "lists": (
            values.lists.items(),
            lambda one: {"key": _text(one[0]), "len": len(one[1].value), "idle_s": now_s - one[1].used_s},
        ),
        "signal_channels": (_channels(service), dict),
    }
    return json.dumps(_fitting(connections, kinds)).encode()


def _entry(key: bytes, kept: Kept[bytes], now_s: float) -> dict[str, Any]:
    return {
        "key": _text(key),
        "value_len": len(kept.value),
        "ttl": max(0, round(kept.ends_s - now_s)) if kept.ends_s else 0,
        "idle_s": now_s - kept.used_s,
    }


def _is_lock(lock: Lock) -> bool:
    return lock.limit == 1


def _is_idle(lock: Lock) -> bool:
    return not lock.holders and not lock.waiters


def _lock(lock: Lock, now_s: float) -> dict[str, Any]:
    holder = next(iter(lock.holders.values()), None)
    return {
        "key": _text(lock.name),
        "owner_conn_id": 0 if holder is None else holder.session.number,
        "lease_expires_in_s": 0 if holder is None else max(0.0, holder.ends_s - now_s),
        "waiters": len(lock.waiters),
    }


def _semaphore(lock: Lock) -> dict[str, Any]:
    return {
        "key": _text(lock.name),
        "limit": lock.limit,
        "holders": len(lock.holders),
        "waiters": len(lock.waiters),
    }


def _idle(lock: Lock, now_s: float) -> dict[str, Any]:
    return {"key": _text(lock.name), "idle_s": now_s - lock.idle_since_s}


def _channels(service: LockService) -> Iterator[dict[str, Any]]:
    for found in service.signals.subscriptions():
        if found.plain:
            yield {"pattern": _text(found.pattern), "listeners": len(found.plain)}
        for name, group in found.groups.items():
            yield {
                "pattern": _text(found.pattern),
                "group": _text(name),
                "listeners": len(group.members),
            }


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
