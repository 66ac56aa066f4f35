"""What people are shown of a key: who holds it, who waits for it, since when and from where."""

from dataclasses import dataclass

from holdfast.leases.layer.locks.records import Lock


@dataclass(frozen=True, slots=True)
class HolderView:
    """A slot that is held."""

    token: bytes
    session: int
    """0: of a connection that is gone."""
    address: str
    ttl_s: int
    ends_in_s: float
    age_s: float


@dataclass(frozen=True, slots=True)
class WaiterView:
    """A place in the queue."""

    session: int
    address: str
    age_s: float


@dataclass(frozen=True, slots=True)
class LockView:
    """A key; idle if there are neither holders nor waiters."""

    name: bytes
    limit: int
    holders: tuple[HolderView, ...]
    waiters: tuple[WaiterView, ...]
    """First come first."""
    idle_s: float


def view_of(lock: Lock, now_s: float) -> LockView:
    holders = tuple(
        HolderView(
            holder.token,
            holder.session.number,
            holder.session.address,
            holder.ttl_s,
            max(0.0, holder.ends_s - now_s),
            max(0.0, now_s - holder.granted_s),
        )
        for holder in lock.holders.values()
    )
    waiters = tuple(
        WaiterView(waiter.session.number, waiter.session.address, max(0.0, now_s - waiter.since_s))
        for waiter in lock.waiters
    )
    is_idle = not holders and not waiters
    return LockView(
        lock.name, lock.limit, holders, waiters, max(0.0, now_s - lock.idle_since_s) if is_idle else 0.0
    )
