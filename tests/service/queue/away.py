"""A queue whose coordinator lives in another process, and that one is away."""

from collections.abc import Sequence

from holdfast.common.errors import NotReady
from holdfast.queue.layer.delivery.transaction_binding import Dependencies
from holdfast.queue.layer.service import QueueService
from holdfast.storage.port import Transaction
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Decision, Member
from tests.service.queue.words import Queue


class AwayCoordinator(Coordinator):
    """Decides nothing while it is away."""

    is_away = True

    def decide(
        self, tx: Transaction, txn_id: str, decision: Decision, members: Sequence[Member], now_ms: int
    ) -> None:
        if self.is_away:
            raise NotReady("the coordinator does not answer")
        super().decide(tx, txn_id, decision, members, now_ms)


def led_from_away(queue: Queue) -> tuple[QueueService, AwayCoordinator]:
    """A second service over the store of this one."""
    coordinator = AwayCoordinator(queue.steady)
    service = QueueService(queue.store, queue.steady, Dependencies(coordinator, queue.leases, queue.state))
    coordinator.enlist(service)
    return service, coordinator
