"""Queues as a part of a process: their endpoints, and the deliveries behind them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain, Waits
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.protocol.lockd.batches import BatchRoutes
from holdfast.queue.protocol.lockd.inspection import InspectionRoutes
from holdfast.queue.protocol.lockd.messages import MessageRoutes
from holdfast.queue.protocol.withdrawal import GiveBackRoutes
from holdfast.queue.settings import QueueSettings
from holdfast.txn.hosting import create_role_app
from holdfast.txn.layers import Layers


class QueuePart:
    """What queues bring into an app."""

    def __init__(self, settings: PlaneSettings, drain: Drain, registry: Registry) -> None:
        waits = Waits(drain)
        self._metrics = QueueMetrics(registry)
        self._messages = MessageRoutes(settings, drain, waits, self._metrics)
        self._batches = BatchRoutes(settings, self._messages, self._metrics)
        self._inspection = InspectionRoutes(settings, waits)
        self._give_back = GiveBackRoutes()

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return self._messages.router, self._batches.router, self._inspection.router

    @property
    def internal_routers(self) -> Sequence[ExpressRouter]:
        return (self._give_back.router,)

    @asynccontextmanager
    async def running(self, layers: Layers) -> AsyncIterator[None]:
        self._metrics.watch(layers.queue)
        for routes in (self._messages, self._batches, self._inspection, self._give_back):
            routes.service = layers.queue
        async with layers.queue.running():
            yield


def create_app(settings: QueueSettings) -> FastAPI:
    return create_role_app(settings, Role.QUEUE, lambda drain, registry: QueuePart(settings, drain, registry))
