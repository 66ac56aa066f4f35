"""The answer to `stats`: what is held, waited for, idle and listened to, as one line of JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.leases.layer.locks.records import Lock
from holdfast.leases.layer.locks.service import LockService


def merged(figures: Sequence[bytes]) -> bytes:
    """The answer, from the figures of all processes."""
    members: dict[str, Any] = {}
    for text in figures:
        for name, value in json.loads(text).items():
            members[name] = members[name] + value if name in members else value
    members["signal_channels"] = members["signal_channels"] or None
    answer = json.dumps(members, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&":
        answer = answer.replace(character, f"\\u{ord(character):04x}")
    return answer.encode()


def figures(service: LockService, connections: int) -> bytes:
    """What this process has."""
    now_s = service.now_s()
    members = {
        "connections": connections,
        "locks": [
            _lock(lock, now_s) for lock in service.table.locks if _is_lock(lock) and not _is_idle(lock)
        ],
        "semaphores": [
            _semaphore(lock) for lock in service.table.locks if not _is_lock(lock) and not _is_idle(lock)
        ],
        "idle_locks": [
            _idle(lock, now_s) for lock in service.table.locks if _is_lock(lock) and _is_idle(lock)
        ],
        "idle_semaphores": [
            _idle(lock, now_s) for lock in service.table.locks if not _is_lock(lock) and _is_idle(lock)
        ],
        "counters": [
            {"key": _text(key), "value": kept.value, "idle_s": now_s - kept.used_s}
            for key, kept in service.values.counters.items()
        ],
        "kv_entries": [
            {
                "key": _text(key),
                "value_len": len(kept.value),
                "ttl": max(0, round(kept.ends_s - now_s)) if kept.ends_s else 0,
                "idle_s": now_s - kept.used_s,
            }
            for key, kept in service.values.texts.items()
            if not kept.ends_s or kept.ends_s > now_s
        ],
        "lists": [
            {"key": _text(key), "len": len(kept.value), "idle_s": now_s - kept.used_s}
            for key, kept in service.values.lists.items()
        ],
        "signal_channels": list(_channels(service)),
    }
    return json.dumps(members).encode()


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
