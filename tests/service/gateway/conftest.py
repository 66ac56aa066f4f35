"""These tests run on uvloop, as the server does; the unit tests use asyncio's own loop."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}
