"""All endpoints of the queue, for the process that serves them."""

from collections.abc import Sequence

from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.drain import Drain, Waits
from holdfast.common.settings import PlaneSettings
from holdfast.queue.layer.service import QueueService
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.protocol.lockd.batches import BatchRoutes
from holdfast.queue.protocol.lockd.inspection import InspectionRoutes
from holdfast.queue.protocol.lockd.messages import MessageRoutes


class QueueEndpoints:
    """They answer once they are open, which they are while the store is."""

    def __init__(self, settings: PlaneSettings, drain: Drain, metrics: QueueMetrics) -> None:
        waits = Waits(drain)
        self._metrics = metrics
        self._messages = MessageRoutes(settings, drain, waits, metrics)
        self._batches = BatchRoutes(settings, self._messages, metrics)
        self._inspection = InspectionRoutes(settings, waits)

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return self._messages.router, self._batches.router, self._inspection.router

    def open(self, service: QueueService) -> None:
        self._metrics.watch(service)
        self._messages.service = service
        self._batches.service = service
        self._inspection.service = service
