"""Listening for NOTIFY on a connection of its own, which is opened again whenever it is lost."""

import asyncio
import logging
from collections.abc import Callable

from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.connection import Lane
from holdfast.storage.postgres.fault import FOREIGN_ERRORS, translate
from holdfast.storage.postgres.retry import Backoff

_log = logging.getLogger(__name__)


class Listener:
    """Calls `on_notice` with the text of each notice; with an empty one after a connect, when some may be lost."""

    def __init__(self, lane: Lane, schema: str, on_notice: Callable[[str], None]) -> None:
        self._lane = lane
        self._channel = f"holdfast.{schema}"
        self._on_notice = on_notice

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
            await self._lane.drop()

    async def _listen(self) -> None:
        """Returns when the connection is lost."""
        is_lost = asyncio.Event()
        connection = await self._lane.raw()
        connection.add_termination_listener(lambda *_: is_lost.set())
        await connection.add_listener(self._channel, lambda *notice: self._on_notice(str(notice[-1])))
        self._on_notice("")
        await is_lost.wait()
        await self._lane.drop()
