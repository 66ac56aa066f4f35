"""The key space over PostgreSQL, in one process and in two that are asked in turns, compared with the model of the unit tests."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.state.layer.kv.operation import PutRequest
from holdfast.storage.port import Store
from tests.conformance.backends import SMALL, postgres_backend
from tests.unit.state.kv.machine import Place, walk
from tests.unit.state.kv.play import play
from tests.unit.state.kv.world import world_over

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
        return Place(lambda: opened(walk_url, processes), is_durable=True, is_shared=True)

    return place


@pytest.mark.parametrize("processes", [1, 2])
def test_the_key_space_is_that_of_the_model_also_over_restarts(postgres_url: str, processes: int) -> None:
    walk(on_postgres(postgres_url, processes), 3)


@pytest.mark.parametrize("processes", [1, 2])
async def test_random_steps_agree_with_the_model(postgres_url: str, processes: int) -> None:
    await play(lambda: opened(postgres_url, processes), 1, STEPS)


async def test_a_lease_that_was_over_while_no_process_ran_has_its_whole_time_again(postgres_url: str) -> None:
    """It is there, as nobody ended it: so it is known, and can be kept alive."""
    clock = SteadyClock(FakeClock())
    async with opened(postgres_url, 1) as stores, world_over(stores, clock) as world:
        await world.grant(2, 1)
        await world.do(PutRequest(b"a", b"1", lease=1))
        model = world.model
    clock.raise_to(clock.now_s() + 10)
    model.keep_alive(1, clock.now_s())

    async with opened(postgres_url, 1) as stores, world_over(stores, clock, model) as world:
        await world.look_at_leases()
        await world.keep_alive(1)
        await world.pass_time(4)
        assert not model.leases


async def test_a_lease_that_is_not_over_at_a_restart_ends_when_it_was_to_end(postgres_url: str) -> None:
    """What is told to be left of it is left of it."""
    clock = SteadyClock(FakeClock())
    async with opened(postgres_url, 1) as stores, world_over(stores, clock) as world:
        await world.grant(5, 1)
        await world.do(PutRequest(b"a", b"1", lease=1))
        await world.pass_time(3)
        model = world.model

    async with opened(postgres_url, 1) as stores, world_over(stores, clock, model) as world:
        await world.look_at_leases()
        await world.pass_time(3)
        assert not model.leases


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("processes", [1, 2])
async def test_many_random_steps_agree_with_the_model(postgres_url: str, processes: int) -> None:
    for seed in range(100):
        await play(lambda: opened(f"{postgres_url}_{seed}", processes), seed, 10 * STEPS)  # noqa: B023
