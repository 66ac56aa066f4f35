"""A plane in a process of its own, a client of each kind, and a prefix that no other test uses."""

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.client import AsyncClient, Client
from holdfast.client.testing import TestServer


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled", "--tcp-listen", "off", store="disk") as running:
        yield running


@pytest.fixture
def client(server: TestServer) -> Iterator[Client]:
    with Client(server.url) as opened:
        yield opened


@pytest.fixture
async def async_client(server: TestServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url) as opened:
        yield opened


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/"
