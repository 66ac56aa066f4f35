"""Keeps everything alive that a client holds, from one task; calls under way are tasks of their own."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from holdfast.client.aio.keepalive import KeepaliveCalls
from holdfast.client.aio.transport import Transport
from holdfast.client.options import ClientOptions
from holdfast.client.session.hold import Hold
from holdfast.client.session.keepalive_batch import BATCH_MAX, NotBatched
from holdfast.client.session.renewal import Renewable, Renewal, Schedule, tell
from holdfast.client.wire.flow import Channel

_CALLS_MAX: Final = 32
"""Calls under way at once: a pool of connections gets slower with every call that waits for one."""


class Renewer:
    """Renews at half time, what ends first goes first; leases that are due together go as one batch."""

    def __init__(self, transport: Transport, channel: Channel, options: ClientOptions) -> None:
        self._keepalive = KeepaliveCalls(transport, channel, options)
        self._schedule = Schedule(
            channel.monotonic_s, channel.chance, jobs_max=_CALLS_MAX, batch_max=BATCH_MAX
        )
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def add(self, renewable: Renewable, guard: AbstractAsyncContextManager[object] | None = None) -> Renewal:
        """Keep this alive until it is discarded or lost; each call is made inside of `guard`."""
        renewal = Renewal(renewable, guard or nullcontext(), isinstance(renewable, Hold))
        is_next = self._schedule.add(renewal)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast.keepalive")
        elif is_next:
            self._changed.set()
        return renewal

    def move(self, renewal: Renewal) -> None:
        """Its holder has moved its end."""
        self._schedule.move(renewal)
        self._changed.set()

    def discard(self, renewal: Renewal) -> None:
        """Renew it no more; a call under way does no harm."""
        self._schedule.discard(renewal)
        if self._schedule.is_empty:
            self._changed.set()

    async def close(self) -> None:
        """End the calls under way for what was given back. What is still in care is told by its next renewal."""
        if not self._schedule.is_empty:
            return
        tasks = [task for task in (self._task, *self._calls) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while not self._schedule.is_empty:
            self._changed.clear()
            tell(self._schedule.advance())
            while job := self._schedule.take(is_batch_allowed=self._keepalive.is_batch_allowed):
                call = asyncio.get_running_loop().create_task(
                    self._renew(job), name="holdfast.keepalive.call"
                )
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            await self._sleep(self._schedule.next_in_s())

    async def _sleep(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _renew(self, job: list[Renewal]) -> None:
        try:
            problems = await self._keepalive.renew(job)
        except NotBatched:
            self._schedule.put_back(job)
        else:
            tell(self._schedule.done(job, problems))
        self._changed.set()
