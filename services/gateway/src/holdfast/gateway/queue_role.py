"""Queues in a process of their own, with those who write the leases and documents of messages with state.

A message, the lease on its state and the document behind it change in one commit. That takes the code of three services
in one process; what belongs to leases and state otherwise stays with their own processes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast.common.clock import SteadyClock
from holdfast.leases.service import LeaseService
from holdfast.queue.app import StateKeepers
from holdfast.queue.app import create_app as create_queue_app
from holdfast.queue.settings import QueueSettings
from holdfast.state.service import StateService
from holdfast.storage.port import Store
from holdfast.storage.remote_decision import RemoteDecider


@asynccontextmanager
async def open_keepers(
    store: Store, decider: RemoteDecider, clock: SteadyClock
) -> AsyncIterator[StateKeepers]:
    leases = LeaseService(store, decider, clock, follows_all=False)
    async with leases.running():
        yield StateKeepers(leases, StateService(store, clock), (leases,))


def create_app(settings: QueueSettings) -> FastAPI:
    return create_queue_app(settings, open_keepers)
