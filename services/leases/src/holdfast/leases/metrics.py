"""The metrics of leases, locks and signals."""

from collections.abc import Callable
from functools import partial

from holdfast.common.telemetry.metrics import OperationMetrics, Registry
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.layer.service import LeaseService
from holdfast.leases.protocol.dflockd.server import LockServer


class LeaseMetrics:
    """What is counted of calls, and what is asked of the service when metrics are read."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.acquire = OperationMetrics(registry, "holdfast.lease.acquire", "Acquires, by how they ended.")
        self.keepalive = OperationMetrics(
            registry, "holdfast.lease.keepalive", "Keepalives, by how they ended."
        )
        self.forgotten = registry.counter(
            "holdfast.retention.keys.forgotten",
            "Keys without a document that were forgotten because they were not used.",
        ).labels()
        self.release = OperationMetrics(registry, "holdfast.lease.release", "Releases, by how they ended.")

    def watch(self, service: LeaseService) -> None:
        """Show the levels of a service from now on."""
        cleared = self._registry.counter(
            "holdfast.sweep.lease.cleared", "Leases not released in time, ended by the server."
        )
        service.on_expired = cleared.labels().inc
        self._registry.gauge(
            "holdfast.lease.active", "Leases that are held.", callback=lambda: float(service.active)
        )
        self._registry.gauge(
            "holdfast.lease.waiters",
            "Callers that wait for a lease.",
            callback=lambda: float(service.waiters),
        )

    def watch_locks(self, locks: LockService, server: LockServer) -> None:
        """The same for locks and signals."""
        expired = self._registry.counter(
            "holdfast.lock.expired", "Locks not released in time, ended by the server."
        )
        locks.on_expired = expired.labels().inc
        levels: list[tuple[str, str, Callable[[], int]]] = [
            ("holdfast.lock.keys", "Keys of locks and semaphores, held or idle.", lambda: len(locks.table)),
            (
                "holdfast.lock.holders",
                "Locks and slots of semaphores that are held.",
                lambda: locks.table.holders,
            ),
            ("holdfast.lock.waiters", "Clients that wait for a lock or a slot.", lambda: locks.table.waiters),
            (
                "holdfast.signal.listeners",
                "Connections that listen to signals.",
                lambda: locks.signals.listeners,
            ),
            (
                "holdfast.signal.channels",
                "Channels and patterns that are listened to.",
                lambda: sum(1 for _ in locks.signals.subscriptions()),
            ),
            ("holdfast.tcp.connections", "Connections of the TCP listener.", lambda: len(server.connections)),
        ]
        for name, description, level in levels:
            self._registry.gauge(name, description, callback=partial(_level, level))


def _level(level: Callable[[], int]) -> float:
    return float(level())
