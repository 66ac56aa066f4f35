"""One suite, every backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.storage.port import Store
from tests.conformance.backends import (
    BACKENDS,
    SMALL,
    Backend,
    disk_backend,
    memory_backend,
    postgres_backend,
)


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
async def store(backend: Backend) -> AsyncIterator[Store]:
    async with backend.open(SMALL) as opened:
        yield opened
