"""A real plane without keys for each test of `holdfast kv`."""

from collections.abc import Iterator

import pytest

from holdfast.client import Client
from holdfast.client.testing import TestServer


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled", "--tcp-listen", "off") as running:
        yield running


@pytest.fixture(autouse=True)
def client(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("HOLDFAST_CLIENT_SERVER", server.url)
    with Client(server.url) as opened:
        opened.kv.delete("", prefix=True)
        yield opened
