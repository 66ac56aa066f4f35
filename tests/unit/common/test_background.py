"""Tasks beside a block: they end with it, and none dies without a word."""

import asyncio
import io
import json
from collections.abc import Iterator

import pytest

from holdfast.common.background import background
from holdfast.common.logging import configure_logging


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    yield stream
    configure_logging("info")


async def test_tasks_end_with_the_block(log: io.StringIO) -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with background(work("one"), work("two"), name="test"):
        await asyncio.sleep(0)

    assert ended == ["one", "two"]
    assert log.getvalue() == ""


async def test_a_defect_in_a_task_is_logged_at_once_and_leaves_the_block_alone(log: io.StringIO) -> None:
    died = asyncio.Event()

    async def work() -> None:
        died.set()
        raise ValueError("a defect")

    async with background(work(), name="test.work"):
        await died.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        line = json.loads(log.getvalue())

    assert (line["msg"], line["lvl"], line["task"]) == ("background.died", "error", "test.work")
