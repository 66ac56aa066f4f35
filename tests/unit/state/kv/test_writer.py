"""Operations that wait for a commit, of a process that stops."""

import asyncio
from typing import Any, cast

import pytest

from holdfast.state.layer.kv.space import SpaceChange
from holdfast.state.layer.kv.writer import KvWriter
from holdfast.storage.errors import StoreClosed
from holdfast.storage.port import Store


class StuckStore:
    """Shared by processes, and out of reach."""

    is_shared = True

    async def transact(self, fn: Any) -> Any:
        await asyncio.Event().wait()


def nothing(change: SpaceChange) -> None:
    """Never run here."""


async def test_who_waits_for_a_commit_is_told_when_the_process_stops() -> None:
    writer = KvWriter(cast(Store, StuckStore()))
    async with writer.running():
        on_its_way = asyncio.ensure_future(writer.run(nothing))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        behind_it = asyncio.ensure_future(writer.run(nothing))
        await asyncio.sleep(0)

    for waiting in (on_its_way, behind_it):
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(waiting, 1)
