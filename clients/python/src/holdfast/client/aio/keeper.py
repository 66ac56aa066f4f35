"""Keeps a lease alive from a task of its own."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

from holdfast.client.aio.transport import Transport
from holdfast.client.errors import ClientError, TransportTimedOut
from holdfast.client.renewal import Renewable


class Keeper:
    """Renews at half time until it is stopped or the lease is lost; each time inside of `guard`."""

    def __init__(
        self,
        transport: Transport,
        hold: Renewable,
        guard: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        self._transport = transport
        self._hold = hold
        self._guard = guard or nullcontext()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"holdfast.keepalive.{self._hold.name}"
        )

    def stop(self) -> None:
        """Renew no more."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        wait_s = self._hold.keepalive_in_s()
        while True:
            await asyncio.sleep(wait_s)
            try:
                await self._renew()
            except ClientError as problem:
                lost_because = self._hold.verdict(problem)
                if lost_because is not None:
                    self._hold.lose(lost_because)
                    return
                wait_s = self._hold.keepalive_in_s(after_failure=True)
            else:
                wait_s = self._hold.keepalive_in_s()

    async def _renew(self) -> None:
        """The lease must not end unnoticed while a slow server makes up its mind."""
        try:
            async with asyncio.timeout(self._hold.remaining_s()), self._guard:
                await self._transport.run(self._hold.keepalive())
        except TimeoutError as error:
            raise TransportTimedOut("no answer before the lease ended") from error
