"""Tasks that run for the length of a block. One that ends by a defect is logged at once, not at the end of the block."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from holdfast.common.logging import get_logger

_log = get_logger("server.lifecycle.background")


@asynccontextmanager
async def background(*work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Not a TaskGroup: that would cancel the body for the defect of a task, and wrap the errors of the body."""
    tasks = [asyncio.create_task(one, name=name) for one in work]
    for task in tasks:
        task.add_done_callback(_log_early_end)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_early_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("background.died", task=task.get_name(), exception=error)
