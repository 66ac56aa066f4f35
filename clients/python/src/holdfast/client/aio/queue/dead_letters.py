"""The dead letters of a queue: messages that used up their attempts."""

from collections.abc import AsyncIterator, Sequence

from holdfast.client.aio.transport import Transport
from holdfast.client.queue.calls import QueueCalls
from holdfast.client.queue.dead_letters import OnProgress, change, page
from holdfast.client.queue.view import StoredMessage


class DeadLetters:
    """`queue.dead_letters`: look at them, send them back, or remove them."""

    def __init__(self, transport: Transport, calls: QueueCalls) -> None:
        self._transport = transport
        self._calls = calls

    async def list(self, *, limit: int | None = None) -> AsyncIterator[StoredMessage]:
        """In order of their message ids, page by page as they are read."""
        after, left = "", limit
        while left is None or left > 0:
            found, after = await self._transport.run(page(self._calls, after, left))
            for letter in found:
                yield letter
            left = None if left is None else left - len(found)
            if not after:
                return

    async def redrive(
        self,
        message_ids: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        on_progress: OnProgress = lambda count: None,
    ) -> int:
        """Put them back into the queue with a fresh count of failures: those named, the oldest so many, or all."""
        flow = change(self._calls, "redrive", message_ids, limit, on_progress)
        return await self._transport.run(flow)

    async def purge(
        self,
        message_ids: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        on_progress: OnProgress = lambda count: None,
    ) -> int:
        """Remove them for ever: those named, the oldest so many, or all."""
        flow = change(self._calls, "purge", message_ids, limit, on_progress)
        return await self._transport.run(flow)
