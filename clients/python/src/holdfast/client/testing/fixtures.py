"""Fixtures for pytest, one server for each test: `pytest_plugins = ["holdfast.client.testing.fixtures"]`."""

from collections.abc import Iterator

import pytest

from holdfast.client.sync.client import Client
from holdfast.client.testing.server import TestServer


@pytest.fixture
def holdfast_server() -> Iterator[TestServer]:
    """A plane in memory, in a process of its own; give it to `TestServer.async_client` for asyncio."""
    with TestServer() as server:
        yield server


@pytest.fixture
def holdfast_client(holdfast_server: TestServer) -> Iterator[Client]:
    """A client of it."""
    with holdfast_server.client() as client:
        yield client
