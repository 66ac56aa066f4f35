"""Leases of the key space: the keys that are attached to one end with it."""

from typing import Final

from holdfast.state.layer.kv.errors import KvLeaseExists, KvLeaseNotFound, LeaseTtlTooLarge
from holdfast.state.layer.kv.records import LEASE_KEYS, LEASES
from holdfast.state.layer.kv.space import SpaceChange
from holdfast.state.layer.records_pb2 import KvLease
from holdfast.storage.keys import next_key, unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Transaction, View

TTL_S_MIN: Final = 1
TTL_S_MAX: Final = 9_000_000_000
REVOKED_KEYS_MAX: Final = 2_000
"""In one revision."""


def granted_ttl(ttl_s: int) -> int:
    """What is granted of what was asked for."""
    if ttl_s > TTL_S_MAX:
        raise LeaseTtlTooLarge
    return max(TTL_S_MIN, ttl_s)


def grant(tx: Transaction, lease_id: int, ttl_s: int, now_ms: int) -> None:
    if LEASES.get(tx, lease_id) is not None:
        raise KvLeaseExists
    LEASES.put(tx, KvLease(ttl_s=ttl_s, expires_at_ms=now_ms + ttl_s * 1000), lease_id)


def renew(tx: Transaction, lease_id: int, now_ms: int) -> int:
    """The time it lasts from now on; 0 if it is over."""
    lease = LEASES.get(tx, lease_id)
    if lease is None or lease.expires_at_ms <= now_ms:
        return 0
    lease.expires_at_ms = now_ms + lease.ttl_s * 1000
    LEASES.put(tx, lease, lease_id)
    return lease.ttl_s


def revoke(change: SpaceChange, lease_id: int, limit: int = REVOKED_KEYS_MAX) -> bool:
    """End it and delete so many of its keys. False: there are more of them than one revision carries, so it has to be done again."""
    if LEASES.get(change.tx, lease_id) is None:
        raise KvLeaseNotFound
    keys = attached_keys(change.tx, lease_id, limit=limit + 1)
    for key in keys[:limit]:
        entry = change.get(key)
        if entry is not None:
            change.delete(entry)
    if len(keys) > limit:
        return False
    LEASES.delete(change.tx, lease_id)
    return True


def attached_keys(view: View, lease_id: int, *, limit: int | None = None) -> list[bytes]:
    found: list[bytes] = []
    start, end = LEASE_KEYS.bounds(lease_id)
    while True:
        page = view.range(start, end, limit=RANGE_LIMIT_MAX)
        for record in page:
            key = unpack(record.key)[2]
            assert isinstance(key, bytes)
            found.append(key)
        if len(page) < RANGE_LIMIT_MAX or (limit is not None and len(found) >= limit):
            return found[:limit]
        start = next_key(page[-1].key)
