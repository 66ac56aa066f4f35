"""Queues over a store in memory and on disk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.storage.disk.store import open_disk
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from tests.service.queue.words import Queue


@pytest.fixture(params=["mem", "disk"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_memory(StoreOptions()) if request.param == "mem" else open_disk(tmp_path, StoreOptions())
    async with opened as store:
        yield store


@pytest.fixture
async def queue(store: Store) -> AsyncIterator[Queue]:
    queue = Queue(store)
    async with queue.service.running():
        yield queue
