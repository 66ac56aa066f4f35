"""How the store keeps a key: its number of slots, who holds them, and the token that no later one falls below."""

from typing import Final

from holdfast.leases.layer.locks.records import Holder, Lock
from holdfast.leases.layer.records_pb2 import LockFloor, LockRecord, LockSlot
from holdfast.storage.keys import unpack
from holdfast.storage.tables import Table

LOCKS: Final = Table("lock", LockRecord)
FLOORS: Final = Table("lock", LockFloor)
HELD: Final = "held"
_MS_MAX: Final = (1 << 63) - 1
FLOOR_KEY: Final = FLOORS.key("floor")


def record_key(name: bytes) -> bytes:
    return LOCKS.key(HELD, name)


def name_of(key: bytes) -> bytes:
    """The name of the lock that a storage key is of."""
    name = unpack(key)[-1]
    assert isinstance(name, bytes), "only `record_key` writes them"
    return name


def record_of(lock: Lock, token: int) -> LockRecord:
    """The key as it stands now; none of its tokens is above `token`."""
    return LockRecord(
        limit=lock.limit, token=token, slots=[_slot(holder) for holder in lock.holders.values()]
    )


def _slot(holder: Holder) -> LockSlot:
    return LockSlot(
        token=bytes.fromhex(holder.token.decode()),
        ttl_s=holder.ttl_s,
        # A lease may be longer than milliseconds can say: then it ends as late as they can.
        ends_at_ms=min(round(holder.ends_s * 1000), _MS_MAX),
        granted_at_ms=round(holder.granted_s * 1000),
        address=holder.session.address,
    )
