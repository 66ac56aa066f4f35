# Generated from aio/queue/dead_letters.py by generate_sync.py: change that, then run `make sync-client`.
"""The dead letters of a queue: messages that used up their attempts."""

from collections.abc import Iterator, Sequence

from holdfast.client.queue.calls import QueueCalls
from holdfast.client.queue.dead_letters import OnProgress, change, page
from holdfast.client.queue.view import StoredMessage
from holdfast.client.sync.transport import Transport


class DeadLetters:
    """`queue.dead_letters`: look at them, send them back, or remove them."""

    def __init__(self, transport: Transport, calls: QueueCalls) -> None:
        self._transport = transport
        self._calls = calls

    def list(self, *, limit: int | None = None) -> Iterator[StoredMessage]:
        """In order of their message ids, page by page as they are read."""
        after, left = "", limit
        while left is None or left > 0:
            found, after = self._transport.run(page(self._calls, after, left))
            yield from found
            left = None if left is None else left - len(found)
            if not after:
                return

    def redrive(
        self,
        message_ids: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        on_progress: OnProgress = lambda count: None,
    ) -> int:
        """Put them back into the queue with a fresh count of failures: those named, the oldest so many, or all."""
        flow = change(self._calls, "redrive", message_ids, limit, on_progress)
        return self._transport.run(flow)

    def purge(
        self,
        message_ids: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        on_progress: OnProgress = lambda count: None,
    ) -> int:
        """Remove them for ever: those named, the oldest so many, or all."""
        flow = change(self._calls, "purge", message_ids, limit, on_progress)
        return self._transport.run(flow)
