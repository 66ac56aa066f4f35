"""A plane with an index on every backend."""

from collections.abc import AsyncIterator

import pytest

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from tests.conformance.backends import SMALL, Backend
from tests.service.state.indexed_plane import IndexedPlane


@pytest.fixture
async def everywhere(backend: Backend) -> AsyncIterator[IndexedPlane]:
    """On every backend, with the index on."""
    async with backend.open(SMALL) as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        yield plane


@pytest.fixture
async def plane() -> AsyncIterator[IndexedPlane]:
    """In memory, with the index on."""
    async with open_memory(StoreOptions()) as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        yield plane
