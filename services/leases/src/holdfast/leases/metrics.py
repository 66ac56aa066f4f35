"""The metrics of leases."""

from holdfast.common.telemetry.metrics import OperationMetrics, Registry
from holdfast.leases.layer.service import LeaseService


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
