"""The key space over PostgreSQL, in one process and in two that are asked in turns, compared with the model of the unit tests."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from holdfast.storage.port import Store
from tests.conformance.backends import SMALL, postgres_backend
from tests.unit.state.kv.machine import Place, walk
from tests.unit.state.kv.play import play

STEPS = 120


@asynccontextmanager
async def opened(url: str, processes: int) -> AsyncIterator[Sequence[Store]]:
    """Each process has a store of its own on the one database."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(postgres_backend(url).open(SMALL)) for _ in range(processes)]


def on_postgres(url: str, processes: int) -> Callable[[], Place]:
    """A schema for each walk."""
    numbers = iter(range(1 << 30))

    def place() -> Place:
        walk_url = f"{url}_{next(numbers)}"
        return Place(lambda: opened(walk_url, processes), is_durable=True)

    return place


@pytest.mark.parametrize("processes", [1, 2])
def test_the_key_space_is_that_of_the_model_also_over_restarts(postgres_url: str, processes: int) -> None:
    walk(on_postgres(postgres_url, processes), 3)


@pytest.mark.parametrize("processes", [1, 2])
async def test_random_steps_agree_with_the_model(postgres_url: str, processes: int) -> None:
    await play(lambda: opened(postgres_url, processes), 1, STEPS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("processes", [1, 2])
async def test_many_random_steps_agree_with_the_model(postgres_url: str, processes: int) -> None:
    for seed in range(100):
        await play(lambda: opened(f"{postgres_url}_{seed}", processes), seed, 10 * STEPS)  # noqa: B023
