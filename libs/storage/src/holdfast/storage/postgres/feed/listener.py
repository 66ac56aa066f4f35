"""Listening for NOTIFY on a connection of its own, which is opened again whenever it is lost."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from holdfast.common.backoff import Backoff
from holdfast.common.clock import SteadyClock
from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.connection import GOODBYE_TIMEOUT_S, Lane
from holdfast.storage.postgres.fault import FOREIGN_ERRORS, translate

REGISTER_INTERVAL_S = 15  # Well below the minute after which a silent listener is forgotten.

_log = logging.getLogger(__name__)


class Listener:
    """Calls `on_notice` with the text of each notice; with an empty one after a connect, when some may be lost."""

    def __init__(self, lane: Lane, schema: str, on_notice: Callable[[str], None], clock: SteadyClock) -> None:
        self.id = uuid.uuid4()  # Commits that name it do not wake this listener.
        self._lane = lane
        self._channel = f"holdfast.{schema}"
        self._on_notice = on_notice
        self._clock = clock

    async def run(self) -> None:
        """Ends only by cancellation."""
        backoff = Backoff(None)
        try:
            while True:
                try:
                    await self._listen()
                    backoff = Backoff(None)
                except StorageError as error:
                    _log.debug("LISTEN failed, the poll stands in: %s", error.detail)
                except FOREIGN_ERRORS as error:
                    _log.debug("LISTEN failed, the poll stands in: %s", translate(error).detail)
                await backoff.pause()
        finally:
            await self._unregister()

    async def _unregister(self) -> None:
        with suppress(StorageError, *FOREIGN_ERRORS):
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                connection = await self._lane.raw()
                await connection.execute("DELETE FROM listeners WHERE id = $1", self.id)
        await self._lane.close()

    async def _listen(self) -> None:
        """Returns when the connection is lost."""
        is_lost = asyncio.Event()
        connection = await self._lane.raw()
        connection.add_termination_listener(lambda *_: is_lost.set())
        await connection.add_listener(self._channel, lambda *notice: self._on_notice(str(notice[-1])))
        while not is_lost.is_set():
            # The store's time: by a wrong one the others would be forgotten, or this one never.
            seen_at = datetime.fromtimestamp(self._clock.now_s(), UTC)
            await connection.execute("SELECT register_listener($1, $2)", self.id, seen_at)
            self._on_notice("")
            with suppress(TimeoutError):
                async with asyncio.timeout(REGISTER_INTERVAL_S):
                    await is_lost.wait()
        await self._lane.drop()
