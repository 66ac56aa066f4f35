"""The plane of these tests on every backend."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common.clock import FakeClock
from tests.conformance.backends import (
    BACKENDS,
    SMALL,
    Backend,
    disk_backend,
    memory_backend,
    postgres_backend,
)
from tests.service.retention.kept_plane import BOTH, KeptPlane


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
async def plane(backend: Backend) -> AsyncIterator[KeptPlane]:
    """Keys without a document are kept for a day, documents for thirty."""
    clock = FakeClock()
    async with backend.open(replace(SMALL, clock=clock)) as store:
        yield KeptPlane(store, clock, BOTH)
