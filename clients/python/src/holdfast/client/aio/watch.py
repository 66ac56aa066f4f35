"""Watches of documents and leases: what happens to keys, without an end, a gap or a repetition."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Self

from holdfast.client.aio.concurrency import GENERATOR_RUNNING
from holdfast.client.aio.queue.live import LiveStream
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import TransportFailed
from holdfast.client.watch.calls import WatchCalls
from holdfast.client.watch.view import MessageReader, WatchEvent, WatchMessage


class Watch(LiveStream[WatchEvent]):
    """`async with client.watch() as watch: async for event in watch`.

    It is opened again whenever it breaks off, and goes on where it was. When what it missed is gone, it ends with Compacted:
    read what you need to know, and watch from now on.
    """

    def __init__(self, transport: Transport, calls: WatchCalls) -> None:
        super().__init__(transport)
        self.revision = calls.after or 0
        """Everything up to here was handed out and asked beyond: another watch may go on after it."""
        self._calls = calls
        self._messages: AsyncGenerator[WatchMessage, None] | None = None

    async def __aenter__(self) -> Self:
        """Returns when the server has registered it: what is read from now on is no older than what it begins after."""
        self._messages = self._told()
        try:
            first = await anext(self._messages, None)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if first is not None:  # None: it was closed meanwhile.
            self.revision = first.revision
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        if self._messages is not None:
            with suppress(GENERATOR_RUNNING):  # Another task reads, and comes to its end by itself.
                await self._messages.aclose()

    async def _read(self) -> AsyncGenerator[WatchEvent, None]:
        self._messages = messages = self._messages or self._told()
        async with aclosing(messages):
            async for message in messages:
                for event in message.events:
                    yield event
                self.revision = message.revision

    async def _told(self) -> AsyncGenerator[WatchMessage, None]:
        opening = self._calls.open(self._prepare)
        async for answer in self._answers(opening):
            is_empty = True
            try:
                async with aclosing(self._events(answer, MessageReader().feed)) as messages:
                    async for message in messages:
                        is_empty = False
                        opening.succeeded()
                        opening.keep_trying()
                        self._calls.after = message.revision
                        yield message
            except TransportFailed as problem:
                if self._closed.is_set():
                    return
                opening.failed(problem)
            else:
                opening.ended(is_empty=is_empty)
