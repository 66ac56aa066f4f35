"""A fake plane for each test that asks for one."""

from collections.abc import Iterator

import pytest

from tests.infra.fake_plane import FakePlane, fake_plane


@pytest.fixture
def served() -> Iterator[tuple[FakePlane, str]]:
    with fake_plane() as running:
        yield running


@pytest.fixture
def plane(served: tuple[FakePlane, str]) -> FakePlane:
    return served[0]


@pytest.fixture
def url(served: tuple[FakePlane, str]) -> str:
    return served[1]
