"""Work that a gateway finishes although no client waits for it: bounded, counted, and given a last moment at shutdown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from holdfast.common.backoff import Backoff
from holdfast.common.logging import get_logger
from holdfast.common.serving.drain import Drain
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.upstream.errors import UpstreamError, UpstreamMalformed
from holdfast.common.upstream.port import UpstreamAnswer

UNFINISHED_MAX: Final = 4096
UNFINISHED_BYTES_MAX: Final = 64 << 20
"""Of the requests that wait to be repeated, together."""
ANSWER_BYTES_MAX: Final = 8 << 20
UNFINISHED_S_MAX: Final = 30.0
"""A service that is not back by then has longer to recover than most leases last."""
_CLOSE_S_MIN: Final = 0.5
_PAUSE_S: Final = 0.1
_FAILURES: Final = frozenset({502, 503, 504})

_log = get_logger("gateway.unfinished")

Result = TypeVar("Result")


class Unfinished:
    """The tasks of one gateway. What does not fit is refused: leases and visibility times end by themselves."""

    def __init__(self, drain: Drain, registry: Registry) -> None:
        self._drain = drain
        self._tasks: dict[asyncio.Task[Any], int] = {}  # And the bytes that each keeps.
        self._bytes = 0
        registry.gauge(
            "holdfast.gateway.unfinished",
            "Calls that the gateway finishes although their client may be gone.",
            callback=lambda: float(len(self._tasks)),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """At the end of the block the tasks have what is left of the drain; then they are cancelled."""
        try:
            yield
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=max(_CLOSE_S_MIN, self._drain.remaining_s()))
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def begin(self, work: Coroutine[Any, Any, Result], size_bytes: int = 0) -> asyncio.Task[Result] | None:
        """None when there is too much unfinished work already."""
        if len(self._tasks) >= UNFINISHED_MAX or self._bytes + size_bytes > UNFINISHED_BYTES_MAX:
            work.close()
            return None
        task = asyncio.create_task(work, name="gateway.unfinished")
        self._tasks[task] = size_bytes
        self._bytes += size_bytes
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._bytes -= self._tasks.pop(task, 0)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, UpstreamError):
            _log.error("gateway.unfinished.failed", exception=error)


def is_failure(answer: UpstreamAnswer) -> bool:
    """Whether the service says that one behind it failed: the call may be repeated, as if it had not answered."""
    return answer.status in _FAILURES


async def collected(answer: UpstreamAnswer) -> UpstreamAnswer:
    """The answer with its whole body: the client that would read a stream may be gone, which would keep its connection for ever."""
    if answer.stream is None:
        return answer
    pieces: list[bytes] = []
    size_bytes = 0
    try:
        async for piece in answer.stream:
            size_bytes += len(piece)
            if size_bytes > ANSWER_BYTES_MAX:
                raise UpstreamMalformed(
                    f"an answer to a repeated call has more than {ANSWER_BYTES_MAX} bytes"
                )
            pieces.append(piece)
    finally:
        await answer.stream.aclose()
    return UpstreamAnswer(answer.status, answer.headers, b"".join(pieces))


async def persist(attempt: Callable[[], Awaitable[UpstreamAnswer]]) -> UpstreamAnswer:
    """Repeat a call that may run twice until it is answered, with growing pauses, for a bounded time.

    The last failure counts if it never is.
    """
    backoff = Backoff(UNFINISHED_S_MAX, first_s=_PAUSE_S)
    while True:
        is_last = backoff.is_over
        try:
            answer = await collected(await attempt())
            if is_last or not is_failure(answer):
                return answer
        except UpstreamError:
            if is_last:
                raise
        await backoff.pause()
