"""The locks of a client: taken, looked after until the client is closed, and looked at."""

from collections.abc import AsyncIterator
from contextlib import suppress

from holdfast.client.aio.locks.lock import HeldLock
from holdfast.client.aio.renewer import Renewer
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import ClientClosed, ClientError
from holdfast.client.locks.calls import PAGE_MAX, LockCalls, LockPage, WantedLock
from holdfast.client.locks.view import ChannelView, LockView


class Locks:
    """`client.locks`: who holds what, for people who look."""

    def __init__(self, transport: Transport, calls: LockCalls, renewer: Renewer) -> None:
        self._transport = transport
        self._renewer = renewer
        self._calls = calls
        self._held: dict[str, HeldLock] = {}
        self._is_closed = False

    async def acquire(self, wanted: WantedLock) -> HeldLock:
        """A lock that is renewed from now on."""
        if self._is_closed:
            raise ClientClosed("this client is closed")
        claim = await self._transport.run(self._calls.acquire(wanted))
        try:
            lock = HeldLock(
                self._transport,
                claim,
                self._renewer,
                on_end=lambda: self._held.pop(claim.grant.token, None),
            )
        except ClientError:  # Nothing can keep it alive, as when there are no more threads.
            with suppress(ClientError):
                await self._transport.run(claim.release())
            raise
        self._held[claim.grant.token] = lock
        if lock.is_ended:  # It was lost before it was there.
            self._held.pop(claim.grant.token, None)
        return lock

    async def list(self, prefix: str = "") -> AsyncIterator[LockView]:
        """All keys that begin so, in their order: held, waited for, or used lately."""
        page = LockPage((), "")
        while True:
            page = await self.page(prefix, cursor=page.cursor)
            for view in page.locks:
                yield view
            if not page.cursor:
                return

    async def page(self, prefix: str = "", *, cursor: str = "", limit: int = PAGE_MAX) -> LockPage:
        """Some of them, and where to go on."""
        return await self._transport.run(self._calls.page(prefix, cursor, limit))

    async def describe(self, key: str) -> LockView | None:
        """One key; None if it was not used lately."""
        return await self._transport.run(self._calls.describe(key))

    async def channels(self, prefix: str = "", *, limit: int = PAGE_MAX) -> tuple[ChannelView, ...]:
        """Channels and patterns that begin so and are listened to, at most 1,000."""
        return await self._transport.run(self._calls.channels(prefix, limit))

    async def release(self, key: str, token: str) -> None:
        """End a lock that another process has taken, by its token; LeaseLost if it holds nothing."""
        await self._transport.run(self._calls.release(key, token))

    async def force(self, view: LockView) -> int:
        """Free the slots that this view shows, without their tokens; how many were still held.

        Holders learn of it when they renew. Those that wait get the slots.
        """
        return await self._transport.run(self._calls.force(view))

    async def close(self) -> None:
        """Release what is still held."""
        self._is_closed = True
        for lock in list(self._held.values()):
            with suppress(ClientError):  # It expires by itself.
                await lock.release()
