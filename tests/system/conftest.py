"""What the tests of processes share: such that start fast, pairs of entrances, and a clock that can be moved on."""

import multiprocessing
import secrets
from collections.abc import AsyncIterator
from multiprocessing.context import ForkServerContext

import pytest

from tests.infra.postgres import PostgresServer
from tests.infra.redis import RedisServer
from tests.system.leases import crasher as lease_crasher
from tests.system.leases.fast_time import ShiftedClock, use_clock
from tests.system.locks import node as locks_node
from tests.system.nodes import nodes
from tests.system.nodes.nodes import Nodes, Pair, all_nodes, whole_nodes
from tests.system.queue import crasher as queue_crasher
from tests.system.split import plane as split_plane
from tests.system.state import attachment_crasher

# Where the actor comes in, and where the waiter does; the same twice for reference.
SHAPES = ("one-one", "one-two", "left-right", "one-right", "left-two", "redis")


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Children of a process that has imported everything already: a life costs a tenth of a second."""
    context = multiprocessing.get_context("forkserver")
    mortals = (lease_crasher, attachment_crasher, queue_crasher, split_plane, nodes, locks_node)
    context.set_forkserver_preload([module.__name__ for module in mortals])
    return context


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ShiftedClock:
    shifted = ShiftedClock()
    use_clock(monkeypatch, shifted)
    return shifted


@pytest.fixture(scope="module")
async def all_shapes(processes: ForkServerContext, module_postgres_url: str) -> AsyncIterator[Nodes]:
    async with all_nodes(processes, module_postgres_url) as nodes:
        yield nodes


@pytest.fixture(scope="module")
async def hinted_nodes(
    processes: ForkServerContext, postgres_server: PostgresServer, redis_server: RedisServer
) -> AsyncIterator[Nodes]:
    """Two planes that tell each other of commits by Redis too."""
    separator = "&" if "?" in postgres_server.url else "?"
    url = f"{postgres_server.url}{separator}schema=hinted_{secrets.token_hex(6)}"
    async with whole_nodes(processes, {"one": url, "two": url}, redis_url=redis_server.url) as nodes:
        yield nodes


@pytest.fixture(params=SHAPES)
def pair(request: pytest.FixtureRequest) -> Pair:
    """Two entrances to one store, for each shape of the plane."""
    if request.param == "redis":
        hinted: Nodes = request.getfixturevalue("hinted_nodes")
        return hinted.pair("one-two")
    nodes: Nodes = request.getfixturevalue("all_shapes")
    return nodes.pair(request.param)
