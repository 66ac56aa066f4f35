"""One suite, every backend."""

from collections.abc import AsyncIterator

import pytest

from holdfast.storage.port import Store
from tests.conformance.backends import SMALL, Backend


@pytest.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    async with backend.open(SMALL) as opened:
        yield opened
