"""Reads that find out half-open connections: no answer comes, and no error either.

A database that is slow and one that is cut off look the same from one connection. So a new one is asked the same after a
while. If that is answered and the older one is not, also not a moment later, all older ones are given up, and the callers that
wait on them try again. A slow database answers the older question first, or together with the newer one.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from holdfast.common.backoff import Backoff
from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.connection import Connections, Row

SILENCE_S = 1.0
GRACE_S = 0.5  # A database that was held up answers all questions at once, in any order.


async def hedged_fetch(connections: Connections, query: str, *args: object) -> list[Row]:
    """The rows, by a shared connection. StoreUnavailable if a new connection is answered and that one is not."""
    doubt = _Doubt(connections, query, args)
    try:
        async with connections.use(doubt.begin) as connection:
            return await connection.fetch(query, *args)
    finally:
        await doubt.end()


class _Doubt:
    """Whether the database is slow or a statement is in vain; costs a timer while there is none."""

    def __init__(self, connections: Connections, query: str, args: Sequence[object]) -> None:
        self._connections = connections
        self._query = query
        self._args = args
        self._loop = asyncio.get_running_loop()
        self._turn_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """From now on the database is waited for; before, other callers had all connections."""
        self._turn_s = self._loop.time()
        self._timer = self._loop.call_later(SILENCE_S, self._start)

    def _start(self) -> None:
        self._task = asyncio.create_task(self._ask_anew(), name="postgres.doubt")

    async def _ask_anew(self) -> None:
        backoff = Backoff(None)
        while True:
            with suppress(StorageError):
                await self._connections.fetch_alone(self._query, *self._args)
                await asyncio.sleep(GRACE_S)  # `end` comes first if the older one is answered.
                self._connections.give_up(self._turn_s)
                return
            await backoff.pause()

    async def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
