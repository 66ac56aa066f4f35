"""A plane in a process of its own, with a TCP listener, and a client of each kind."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

import pytest

from holdfast.client import AsyncClient, Client
from holdfast.client.testing import TestServer
from tests.infra.program import free_ports

T = TypeVar("T")


class Plane(NamedTuple):
    """Where it is."""

    url: str
    tcp: str


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    (port,) = free_ports(1)
    with TestServer("--qrf-disabled", "--tcp-listen", f"127.0.0.1:{port}") as server:
        yield Plane(server.url, f"127.0.0.1:{port}")


@pytest.fixture
def client(plane: Plane) -> Iterator[Client]:
    with Client(plane.url) as opened:
        yield opened


@pytest.fixture
async def async_client(plane: Plane) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(plane.url) as opened:
        yield opened


def started(work: Callable[[], T]) -> "Future[T]":
    """Run in a thread of its own; the result is asked for with a timeout."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # The edge of the thread: `result` raises it.
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
