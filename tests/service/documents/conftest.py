"""A plane of documents: in memory, on disk, encrypted, in PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from tests.conformance.backends import SMALL, Backend
from tests.infra.document_plane import Plane


@pytest.fixture
async def everywhere(backend: Backend) -> AsyncIterator[Plane]:
    """On every backend."""
    async with backend.open(SMALL) as store:
        yield Plane(store)


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    """In memory."""
    async with open_memory(StoreOptions()) as store:
        yield Plane(store)
