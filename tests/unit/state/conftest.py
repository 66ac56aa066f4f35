"""A plane of documents in memory."""

from collections.abc import AsyncIterator

import pytest

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from tests.infra.document_plane import Plane


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with open_memory(StoreOptions()) as store:
        yield Plane(store)
