"""A plane with an index on every backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from tests.conformance.backends import (
    BACKENDS,
    SMALL,
    Backend,
    disk_backend,
    memory_backend,
    postgres_backend,
)
from tests.service.state.indexed_plane import IndexedPlane


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    match request.param:
        case "mem":
            return memory_backend()
        case "postgres":
            return postgres_backend(request.getfixturevalue("postgres_url"))
        case _:
            return disk_backend(tmp_path / "store", encrypted=request.param == "disk-encrypted")


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
