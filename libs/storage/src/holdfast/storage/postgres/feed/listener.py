"""Listening for NOTIFY while it is wanted, on a connection of its own, which is opened again whenever it is lost."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from holdfast.common.backoff import Backoff
from holdfast.common.clock import SteadyClock
from holdfast.storage.errors import StorageError
from holdfast.storage.postgres.connection import GOODBYE_TIMEOUT_S, Lane, RawConnection
from holdfast.storage.postgres.fault import FOREIGN_ERRORS, translate

REGISTER_INTERVAL_S = 15  # Well below the minute after which a silent listener is forgotten.
CALL_TIMEOUT_S = 5

_log = logging.getLogger(__name__)


class Listener:
    """Calls `on_notice` with the text of each notice; with an empty one when it begins to listen, because some may be lost.

        SILENT     --`demand_began`-->                                  LISTENING, and the others notify this process
        LISTENING  --nothing is wanted when it registers again-->       SILENT

    A commit that notifies wakes every process that listens, which costs as much as a commit: so only those listen in which a
    caller waits for what others do.
    """

    def __init__(
        self,
        lane: Lane,
        schema: str,
        clock: SteadyClock,
        *,
        on_notice: Callable[[str], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.id = uuid.uuid4()  # Commits that name it do not wake this listener.
        self._lane = lane
        self._channel = f"holdfast.{schema}"
        self._clock = clock
        self._on_notice = on_notice
        self._is_wanted = is_wanted
        self._is_listening = False
        self._is_registered = False  # Perhaps: a connection that is lost leaves the registration behind.
        self._has_changed = asyncio.Event()

    def demand_began(self) -> None:
        """`is_wanted` has become true."""
        if not self._is_listening:
            self._has_changed.set()

    async def run(self) -> None:
        """Ends only by cancellation."""
        backoff = Backoff(None)
        try:
            while True:
                try:
                    await self._follow_demand()
                    backoff = Backoff(None)
                except StorageError as error:
                    _log.debug("LISTEN failed, the poll stands in: %s", error.detail)
                except FOREIGN_ERRORS as error:
                    _log.debug("LISTEN failed, the poll stands in: %s", translate(error).detail)
                self._is_listening = False
                await self._lane.drop()
                await backoff.pause()
        finally:
            if self._is_registered:
                with suppress(StorageError, *FOREIGN_ERRORS):
                    async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                        await self._unregister(await self._lane.raw())
            await self._lane.close()

    async def _follow_demand(self) -> None:
        """Returns when the connection is lost."""
        is_lost = False

        def lost(*_: object) -> None:
            nonlocal is_lost
            is_lost = True
            self._has_changed.set()

        connection = await self._lane.raw()
        connection.add_termination_listener(lost)
        while not is_lost:
            self._has_changed.clear()
            async with asyncio.timeout(CALL_TIMEOUT_S):  # The connection may be half open.
                await self._match_demand(connection)
            with suppress(TimeoutError):
                async with asyncio.timeout(REGISTER_INTERVAL_S if self._is_listening else None):
                    await self._has_changed.wait()

    async def _match_demand(self, connection: RawConnection) -> None:
        if self._is_wanted():
            if not self._is_listening:
                await connection.add_listener(self._channel, self._noticed)
                self._is_listening = True
            await self._register(connection)
            self._on_notice("")
            return
        if self._is_registered:
            await self._unregister(connection)
        if self._is_listening:
            await connection.remove_listener(self._channel, self._noticed)
            self._is_listening = False
        if self._is_wanted():
            self._has_changed.set()  # It has become so meanwhile, and was not heard.

    def _noticed(self, *notice: object) -> None:
        self._on_notice(str(notice[-1]))

    async def _register(self, connection: RawConnection) -> None:
        # The store's time: by a wrong one the others would be forgotten, or this one never.
        seen_at = datetime.fromtimestamp(self._clock.now_s(), UTC)
        self._is_registered = True
        await connection.execute("SELECT register_listener($1, $2)", self.id, seen_at)

    async def _unregister(self, connection: RawConnection) -> None:
        await connection.execute("DELETE FROM listeners WHERE id = $1", self.id)
        self._is_registered = False
