"""Answers that give something away and whose client is gone: read to their end, and undone by the service."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from holdfast.common.express.message import JSON_HEADERS, Header
from holdfast.common.express.undo import Grants, Undo
from holdfast.common.logging import get_logger
from holdfast.common.telemetry.metrics import Counter, Family
from holdfast.common.upstream.errors import UpstreamError
from holdfast.common.upstream.port import AnswerStream, Upstream, UpstreamAnswer
from holdfast.gateway.proxy.unfinished import Unfinished, persist

_CALL_S_MAX: Final = 10.0

_log = get_logger("gateway.giving_back")


class GivingBack:
    """Of the answers of one route. `counted` is by service and outcome."""

    def __init__(
        self, undo: Undo, service: str, upstream: Upstream, unfinished: Unfinished, counted: Family[Counter]
    ) -> None:
        self._undo = undo
        self._service = service
        self._upstream = upstream
        self._unfinished = unfinished
        self._counted = counted

    def answer_came_late(self, affinity: bytes, coming: "asyncio.Future[UpstreamAnswer]") -> None:
        """The call was called off; its answer may come all the same."""
        self._begin(self._undo_coming(affinity, coming))

    def answer_is_unsent(self, affinity: bytes, answer: UpstreamAnswer) -> None:
        """It is whole, and its client is gone."""
        self._begin(self._undo_answer(affinity, answer))

    def watched(self, affinity: bytes, stream: AnswerStream, headers: Sequence[Header]) -> "WatchedStream":
        """The body of an answer that streams."""
        grants = self._undo.grants_of(headers)
        return WatchedStream(stream, grants, partial(self._stream_is_unsent, affinity))

    def _stream_is_unsent(self, affinity: bytes, stream: AnswerStream, grants: Grants) -> None:
        stream.call_off()
        self._begin(self._undo_stream(affinity, stream, grants))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._unfinished.begin(work) is None:
            self._count("refused")

    async def _undo_coming(self, affinity: bytes, coming: "asyncio.Future[UpstreamAnswer]") -> None:
        try:
            answer = await coming
        except UpstreamError:
            return  # It was not given: the service stopped before, or has died and cannot be asked.
        await self._undo_answer(affinity, answer)

    async def _undo_answer(self, affinity: bytes, answer: UpstreamAnswer) -> None:
        grants = self._undo.grants_of(answer.headers)
        if answer.stream is not None:
            answer.stream.call_off()
            await self._undo_stream(affinity, answer.stream, grants, is_granting=answer.status == 200)
        elif answer.status == 200:
            grants.feed(answer.body)
            await self._undo_grants(affinity, grants)

    async def _undo_stream(
        self, affinity: bytes, stream: AnswerStream, grants: Grants, *, is_granting: bool = True
    ) -> None:
        try:
            async for piece in stream:
                grants.feed(piece)
        except UpstreamError:
            pass  # That is how a stream ends which was called off.
        finally:
            await stream.aclose()
        if is_granting:
            await self._undo_grants(affinity, grants)

    async def _undo_grants(self, affinity: bytes, grants: Grants) -> None:
        body = grants.request()
        if body is None:
            return

        async def call() -> UpstreamAnswer:
            return await self._upstream.call(
                "POST",
                self._undo.path,
                JSON_HEADERS,
                body,
                deadline_s=_CALL_S_MAX,
                affinity=affinity,
                is_repeatable=True,
            )

        try:
            answer = await persist(call)
        except UpstreamError as error:
            _log.warn("gateway.give_back.failed", service=self._service, reason=error.detail)
            self._count("failed")
            return
        self._count("done" if answer.status == 200 else "failed")

    def _count(self, outcome: str) -> None:
        self._counted.labels(self._service, outcome).inc()


class WatchedStream(AsyncIterator[bytes]):
    """The chunks of an answer, each of which its client has taken when the next one is asked for."""

    def __init__(
        self, stream: AnswerStream, grants: Grants, on_unsent: Callable[[AnswerStream, Grants], None]
    ) -> None:
        self._stream = stream
        self._grants = grants
        self._on_unsent = on_unsent
        self._is_over = False

    async def __anext__(self) -> bytes:
        self._grants.handed_over()
        try:
            chunk = await anext(self._stream)
        except StopAsyncIteration:
            self._is_over = True
            raise
        self._grants.feed(chunk)
        return chunk

    async def aclose(self) -> None:
        if self._is_over:
            await self._stream.aclose()
        else:
            self._is_over = True
            self._on_unsent(self._stream, self._grants)
