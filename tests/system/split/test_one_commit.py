"""A transaction over two keys, a message it took and one it sends ends by one durable commit, in every shape of the plane."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from multiprocessing.context import ForkServerContext
from typing import Final

import httpx
import pytest

from holdfast.client.testing.server import TestServer
from holdfast.common.role import SERVICES
from tests.infra.postgres import PostgresServer
from tests.system.split.plane import SplitPlane
from tests.system.split.transaction import SplitTransaction


class Shape:
    """Where it is reached, and the processes that may commit."""

    def __init__(self, client: httpx.AsyncClient, committers: Sequence[str]) -> None:
        self.client = client
        self._committers = committers

    async def commits(self) -> int:
        total = 0.0
        for url in self._committers:
            page = (await self.client.get(f"{url}/metrics")).text
            total += sum(
                float(line.split()[1])
                for line in page.splitlines()
                if line.startswith("holdfast_storage_commits_total ")
            )
        return int(total)


@pytest.fixture(
    scope="module",
    params=["disk", "postgres", "split", pytest.param("replicas", marks=pytest.mark.long)],
)
async def shape(
    request: pytest.FixtureRequest, processes: ForkServerContext, postgres_server: PostgresServer
) -> AsyncIterator[Shape]:
    separator = "&" if "?" in postgres_server.url else "?"
    url = f"{postgres_server.url}{separator}schema=one_commit_{secrets.token_hex(6)}"
    async with AsyncExitStack() as stack:
        if request.param in ("disk", "postgres"):
            store = "disk" if request.param == "disk" else url
            server = await stack.enter_async_context(TestServer(store=store))
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=40))
            yield Shape(client, [server.url])
            return
        twins = tuple(SERVICES) if request.param == "replicas" else ()
        plane = await stack.enter_async_context(SplitPlane(processes, url, twins=twins).running())
        numbers = (0, 1) if twins else (0,)
        yield Shape(plane.client, [plane.url_of(role, number) for role in SERVICES for number in numbers])


END: Final[dict[str, Callable[[SplitTransaction], Awaitable[httpx.Response | None]]]] = {
    "release": SplitTransaction.release,
    "rollback": lambda transaction: transaction.release(rollback=True),
    "ack": SplitTransaction.ack,
    "nack": SplitTransaction.nack,
    "commit": lambda transaction: transaction.decide("commit"),
    "decided-rollback": lambda transaction: transaction.decide("rollback"),
}


@pytest.mark.parametrize("end", END)
async def test_a_transaction_ends_by_one_commit(shape: Shape, end: str) -> None:
    transaction = SplitTransaction(shape)
    await transaction.begin()
    before = await shape.commits()

    answer = await END[end](transaction)

    assert answer is not None
    assert answer.status_code == 200, answer.text
    assert await shape.commits() - before == 1
    assert await transaction.is_free()
