"""What `holdfast queue watch` does, on an event loop: it follows queues, and shows what changes."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.output import OutputFormat
from holdfast.cli.queue.print import moment
from holdfast.cli.queue.target import QueueTarget
from holdfast.client import AsyncQueue, ClientError, QueueChange, QueueStats

if TYPE_CHECKING:
    from rich.table import Table

_REFRESH_S: Final = 2.0
_PENDING_MAX: Final = 64

Seen = tuple[QueueChange, QueueStats]


async def watch(
    target: QueueTarget, names: Sequence[str], board: "Board", count: int, *, is_refreshed: bool
) -> ClientError | None:
    """What ended it, if that was no decision of ours."""
    pending: asyncio.Queue[Seen] = asyncio.Queue(_PENDING_MAX)
    problem: ClientError | None = None
    async with target.async_client() as client:
        try:
            async with asyncio.TaskGroup() as group:
                followers: list[asyncio.Task[None]] = []
                for name in names:
                    queue = client.queue(name, namespace=target.namespace or None)
                    latest = Latest(queue, pending)
                    followers.append(group.create_task(latest.follow()))
                    if is_refreshed:
                        followers.append(group.create_task(latest.refresh()))
                await _show(pending, board, count)
                for follower in followers:
                    follower.cancel()
        except* ClientError as problems:
            first = problems.exceptions[0]
            problem = first if isinstance(first, ClientError) else ClientError(str(first))
    return problem


async def _show(pending: "asyncio.Queue[Seen]", board: "Board", count: int) -> None:
    shown = 0
    while not count or shown < count:
        board.show(*await pending.get())
        shown += 1


class Latest:
    """One queue: its last change, with the statistics of that moment and of every other moment a table shows."""

    def __init__(self, queue: AsyncQueue, pending: "asyncio.Queue[Seen]") -> None:
        self._queue = queue
        self._pending = pending
        self._change: QueueChange | None = None

    async def follow(self) -> None:
        async with self._queue.watch() as changes:
            async for change in changes:
                self._change = change
                await self._pending.put((change, await self._queue.stats()))

    async def refresh(self) -> None:
        """Consumers come and go, and messages grow old, without a change of the head."""
        while True:
            await asyncio.sleep(_REFRESH_S)
            if self._change is not None:
                await self._pending.put((self._change, await self._queue.stats()))


class Board(AbstractContextManager["Board"], Protocol):
    """Where changes are shown."""

    def show(self, change: QueueChange, stats: QueueStats) -> None: ...


class ChangeLines:
    """A line for each change, for logs and pipes."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, change: QueueChange, stats: QueueStats) -> None:
        if self._output is OutputFormat.JSON:
            typer.echo(json.dumps({**stats.raw, **change.raw}, separators=(",", ":")))
        else:
            typer.echo(
                f"{moment(change.changed_at_unix)} queue={printable(change.queue)} "
                f"available={str(change.is_available).lower()} head={printable(change.head_message_id) or '-'} "
                f"waiting={stats.waiting_consumers} in_flight={stats.in_flight}"
            )


class LiveTable:
    """A row for each queue, drawn anew whenever something changes."""

    def __init__(self) -> None:
        from rich.live import Live

        self._rows: dict[str, Sequence[str]] = {}
        self._live = Live(self._table(), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, change: QueueChange, stats: QueueStats) -> None:
        self._rows[change.queue] = (
            printable(change.queue),
            "paused" if stats.is_paused else "ready" if stats.is_available else "empty",
            printable(stats.head_message_id) or "-",
            f"{stats.head_age_s}s" if stats.head_message_id else "-",
            str(stats.waiting_consumers),
            str(stats.in_flight),
        )
        self._live.update(self._table(), refresh=True)

    def _table(self) -> "Table":
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table("QUEUE", "STATE", "HEAD", "AGE", "WAITING", "OUT", box=SIMPLE_HEAD, pad_edge=False)
        for _, row in sorted(self._rows.items()):
            table.add_row(*row)
        return table
