"""The metrics of queues."""

from collections.abc import Sequence

from holdfast.common.telemetry.metrics import OperationMetrics, Registry
from holdfast.queue.layer.message.types import Delivery
from holdfast.queue.layer.service import QueueService


class QueueMetrics:
    """Calls by how they ended, and how much they moved."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

        def operation(name: str, help_text: str) -> OperationMetrics:
            return OperationMetrics(registry, f"holdfast.queue.{name}", help_text)

        self.enqueue = operation("enqueue", "Enqueues, of one message or of a batch.")
        self.dequeue = operation("dequeue", "Dequeues, and subscriptions up to their first message.")
        self.ack = operation("ack", "Acks, of one message or of a batch.")
        self.nack = operation("nack", "Nacks.")
        self.extend = operation("extend", "Extensions of deliveries.")
        self._delivered = registry.counter(
            "holdfast.queue.dequeue.messages", "Messages that were delivered, streams included."
        ).labels()
        self._delivered_bytes = registry.counter(
            "holdfast.queue.dequeue.bytes", "Bytes of their payloads.", unit="By"
        ).labels()

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        self._delivered.value += len(deliveries)
        self._delivered_bytes.value += sum([delivery.body.size_bytes for delivery in deliveries])

    def watch(self, service: QueueService) -> None:
        """Show the levels of a service from now on, and what it has stored."""
        arrivals = service.arrivals
        self._registry.counter(
            "holdfast.queue.enqueue.messages",
            "Messages that enqueue has stored. Those staged in a transaction count at once, also if it is rolled back.",
            callback=lambda: float(arrivals.stored_messages),
        )
        self._registry.counter(
            "holdfast.queue.enqueue.bytes",
            "Bytes of their payloads.",
            unit="By",
            callback=lambda: float(arrivals.stored_bytes),
        )
        for name, help_text, level in (
            ("consumers", "Consumers that wait or have a stream.", lambda: float(service.consumers)),
            ("waiters", "Consumers that wait for a message.", lambda: float(service.waiters)),
            ("pending", "Messages in memory that no consumer holds.", lambda: float(service.pending)),
            (
                "in_flight",
                "Messages that are delivered and neither acked nor given back.",
                lambda: float(service.in_flight),
            ),
        ):
            self._registry.gauge(f"holdfast.queue.{name}", help_text, callback=level)
