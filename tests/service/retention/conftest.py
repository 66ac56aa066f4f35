"""The plane of these tests on every backend."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.common.clock import FakeClock
from tests.conformance.backends import SMALL, Backend
from tests.service.retention.kept_plane import BOTH, KeptPlane


@pytest.fixture
async def plane(backend: Backend) -> AsyncIterator[KeptPlane]:
    """Keys without a document are kept for a day, documents for thirty."""
    clock = FakeClock()
    async with backend.open(replace(SMALL, clock=clock)) as store:
        yield KeptPlane(store, clock, BOTH)
