"""The queue `orders` of a store in short words, with the services it goes with, and a clock that the test owns."""

from holdfast.common.clock import FakeClock, SteadyClock, SystemClock
from holdfast.leases.layer.service import LeaseService
from holdfast.queue.layer.delivery.transaction_binding import Dependencies
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.types import (
    Delivery,
    DequeueOrder,
    EnqueueOrder,
    LeaseClaim,
    Message,
    NackOrder,
    QueueAddress,
    Requeued,
)
from holdfast.queue.layer.service import QueueService
from holdfast.state.layer.document.service import StateService
from holdfast.storage.port import Store
from holdfast.txn.layer.coordinator import Coordinator

ORDERS = QueueAddress("default", "orders")


class Queue:
    """The queue `orders` in short words."""

    def __init__(
        self,
        store: Store,
        limits: QueueLimits | None = None,
        *,
        clock: FakeClock | None = None,
        has_own_clock: bool = True,
    ) -> None:
        self.store = store
        self.clock = clock or FakeClock()
        self.steady = steady = SteadyClock(self.clock if has_own_clock else SystemClock())
        self.coordinator = coordinator = Coordinator(steady)
        self.leases = LeaseService(store, coordinator, steady)
        self.state = StateService(store, steady)
        self.service = QueueService(store, steady, Dependencies(coordinator, self.leases, self.state), limits)
        coordinator.enlist(self.state)
        coordinator.enlist(self.leases)
        coordinator.enlist(self.service)

    async def enqueue(self, payload: bytes = b"payload", **order: object) -> Message:
        content = await self.service.arrivals.content_of(ORDERS, payload)
        asked = {"correlation_id": "corr", **order}
        new = EnqueueOrder(ORDERS, **asked)  # type: ignore[arg-type]
        (message,) = await self.service.arrivals.enqueue([(new, content)])
        return message

    async def dequeue(self, **order: object) -> Delivery:
        deliveries = await self.dequeue_many(**order)
        assert len(deliveries) == 1
        return deliveries[0]

    async def dequeue_many(self, **order: object) -> list[Delivery]:
        asked = {"owner": "worker", "wait_s": 0.0, **order}
        return await self.service.dequeue(DequeueOrder(ORDERS, **asked))  # type: ignore[arg-type]

    async def ack(self, delivery: Delivery) -> None:
        await self.service.ack(claim(delivery))

    async def nack(self, delivery: Delivery, **order: object) -> Requeued:
        return await self.service.nack(NackOrder(claim(delivery), **order))  # type: ignore[arg-type]


def claim(delivery: Delivery) -> LeaseClaim:
    return LeaseClaim(
        delivery.message.address,
        delivery.message.message_id,
        delivery.lease_id,
        delivery.fencing_token,
        delivery.txn_id,
        delivery.meta_etag,
    )
