"""Leases that other processes of the same store end: who waits for them here is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from holdfast.common.logging import get_logger
from holdfast.leases.service import LeaseService
from holdfast.storage.errors import StorageError
from holdfast.storage.layers import held_range, member_of
from holdfast.storage.port import Store

RETRY_S = 1.0

_log = get_logger("leases.follower")


@asynccontextmanager
async def following(store: Store, leases: LeaseService) -> AsyncIterator[None]:
    """For the length of the block."""
    task = asyncio.create_task(_follow(store, leases), name="leases.follower")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _follow(store: Store, leases: LeaseService) -> None:
    start, end = held_range()
    while True:
        try:
            async with store.watch(start, end) as watch:
                async for events in watch:
                    leases.may_be_free([member_of(event.key) for event in events if event.record is None])
        except StorageError as error:
            # What was missed meanwhile is found by the waiters themselves when the lease they wait for is over.
            _log.warn("leases.follow.failed", reason=error.detail)
            await asyncio.sleep(RETRY_S)
