"""The key space over stores that one process owns, compared step by step with a model that keeps a copy of every revision."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.disk.store import open_disk
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from tests.conformance.backends import SMALL
from tests.unit.state.kv.machine import Place, alone, walk
from tests.unit.state.kv.play import play

SEEDS = 8
STEPS = 400


def in_memory() -> Place:
    return Place(lambda: alone(open_memory(StoreOptions())))


def on_disk(folder: Path) -> Callable[[], Place]:
    """A folder for each walk."""
    numbers = iter(range(1 << 30))

    def place() -> Place:
        path = folder / str(next(numbers))
        return Place(lambda: alone(open_disk(path, SMALL)), is_durable=True)

    return place


def test_the_key_space_in_memory_is_that_of_the_model() -> None:
    walk(in_memory, 30)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_random_steps_in_memory_agree_with_the_model(seed: int) -> None:
    await play(in_memory().open, seed, STEPS)


def test_the_key_space_on_disk_is_that_of_the_model_also_over_restarts(tmp_path: Path) -> None:
    walk(on_disk(tmp_path), 8)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_key_space_is_that_of_the_model_for_long(tmp_path: Path) -> None:
    walk(in_memory, 3000, steps=50)
    walk(on_disk(tmp_path), 300, steps=50)
