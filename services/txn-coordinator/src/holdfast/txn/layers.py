"""The layers of one store in one process: leases, documents, queues and decisions, wired to each other.

Every process on a store builds all of them, in any role: a transaction commits once, with the rules of every
layer that it touches, in the process that got the call. What a process keeps in memory of the others (waiters, windows
on queues) follows by the change feed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.common.role import Role
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.layer.service import LeaseService
from holdfast.queue.layer.delivery.transaction_binding import Dependencies
from holdfast.queue.layer.limits import limits_of
from holdfast.queue.layer.service import QueueService
from holdfast.state.layer.document.service import StateService
from holdfast.storage.port import Store
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.island import backend_hash_of
from holdfast.txn.layer.led import Led
from holdfast.txn.metrics import TxnMetrics


@dataclass(frozen=True, slots=True)
class Layers:
    store: Store
    leases: LeaseService
    state: StateService
    queue: QueueService
    coordinator: Coordinator


@asynccontextmanager
async def open_layers(
    store: Store,
    settings: PlaneSettings,
    role: Role,
    registry: Registry,
    *,
    on_lease_end: Callable[[], None] = lambda: None,
    leader: Led | None = None,
) -> AsyncIterator[Layers]:
    """For the length of the block, as a process of this role has them. `leader`: the way to the coordinator of a cluster
    from a process that is not one itself."""
    coordinator = Coordinator(
        store.clock,
        backend_hash=await backend_hash_of(store),
        retention_s=settings.tc_decision_retention_s,
        record_ttl_s=settings.ttl_s_default,
        metrics=TxnMetrics(registry),
    )
    coordinator.lead = leader
    serves_leases = role in (Role.ALL, Role.LEASES)
    leases = LeaseService(store, coordinator, store.clock, on_end=on_lease_end, follows_all=serves_leases)
    state = StateService(store, store.clock)
    queue = QueueService(store, store.clock, Dependencies(coordinator, leases, state), limits_of(settings))
    for layer in (state, leases, queue):
        coordinator.enlist(layer)
    async with leases.running():
        yield Layers(store, leases, state, queue, coordinator)
