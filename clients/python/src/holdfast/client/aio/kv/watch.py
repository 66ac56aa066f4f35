"""What happens to keys, without an end."""

from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from holdfast.client.aio.concurrency import Event
from holdfast.client.aio.queue.live import LiveStream
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import TransportFailed, Unavailable
from holdfast.client.kv.calls import KvCalls
from holdfast.client.kv.view import KvEvent
from holdfast.client.kv.watching import Watching
from holdfast.client.queue.opening import Opening


class KvWatch(LiveStream[KvEvent]):
    """`async for event in watch`. Opened again whenever it breaks off, at the first revision that was not told yet.

    Compacted when the server has forgotten that one meanwhile. `opened` is set as soon as the server knows the watch.
    """

    def __init__(self, transport: Transport, calls: KvCalls, watching: Watching) -> None:
        super().__init__(transport)
        self.opened = Event()
        self._calls = calls
        self._watching = watching
        self._arrived = deque[KvEvent]()

    @property
    def next_revision(self) -> int:
        """Where another watch would have to start to go on after all that has arrived here."""
        return self._watching.next_revision

    async def _read(self) -> AsyncGenerator[KvEvent, None]:
        while self._arrived:  # Left over by a loop that ended within a revision.
            yield self._arrived.popleft()
        opening = self._calls.watch(self._watching, self._prepare)
        async for answer in self._answers(opening):
            self._watching.opened()
            is_empty = True
            try:
                async with aclosing(self._events(answer, lambda data: self._feed(opening, data))) as batches:
                    async for batch in batches:
                        is_empty = is_empty and not batch
                        self._arrived.extend(batch)
                        while self._arrived:
                            yield self._arrived.popleft()
            except (TransportFailed, Unavailable) as problem:
                if self._closed.is_set():
                    return
                opening.failed(problem)
            else:
                opening.ended(is_empty=is_empty)

    def _feed(self, opening: Opening, data: bytes) -> Iterator[list[KvEvent]]:
        for batch in self._watching.feed(data):
            if self._watching.is_created:
                opening.succeeded()
                self.opened.set()
            yield batch
