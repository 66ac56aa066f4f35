"""The README of each unit maps its modules: every one is named, and nothing is named that is not there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_tree import ROOT, SRC_ROOTS

UNITS = [root.removesuffix("/src") for root in SRC_ROOTS]
MAP = re.compile(r"^## Map$\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.+?) \|", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")
UNNAMED = {"__init__.py", "__main__.py"}


def package_of(unit: str) -> Path:
    (package,) = (path for path in (ROOT / unit / "src/holdfast").iterdir() if path.name != "__pycache__")
    return package


def modules_of(package: Path) -> set[str]:
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.name not in UNNAMED and not path.stem.endswith("_pb2")
    }


def names_in(readme: str) -> Iterator[str]:
    """The paths in the first cell of each row of the map."""
    found = MAP.search(readme)
    assert found is not None, "the README has no section `## Map`"
    for cell in ROW.findall(found[1]):
        yield from NAME.findall(cell)


@pytest.mark.parametrize("unit", UNITS)
def test_the_map_names_every_module(unit: str) -> None:
    named = set(names_in((ROOT / unit / "README.md").read_text("utf-8")))

    assert modules_of(package_of(unit)) - named == set()


@pytest.mark.parametrize("unit", UNITS)
def test_the_map_names_nothing_that_is_not_there_and_nothing_twice(unit: str) -> None:
    package = package_of(unit)
    named = list(names_in((ROOT / unit / "README.md").read_text("utf-8")))

    assert [name for name in named if not (package / name).exists()] == []
    assert sorted(set(named)) == sorted(named)


def test_only_the_first_cells_of_the_map_count() -> None:
    readme = "# Unit\n\n## Map\n\n| where | what |\n|---|---|\n| `a.py`, `b/` | both |\n\n## More\n\n| `c.py` | no |\n"

    assert list(names_in(readme)) == ["a.py", "b/"]
