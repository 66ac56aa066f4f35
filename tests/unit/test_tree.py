"""The tree is what the packaging believes it is, and says nothing about the machine it was written on."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TOOL: dict[str, Any] = PYPROJECT["tool"]
SRC_ROOTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*/src"))
NOT_OURS = {"__pycache__", "dist", "node_modules"}
OUR_HIDDEN = {".ci", ".gitignore"}

# Written so that the patterns do not find themselves.
FOREIGN = {
    "a package registry": re.compile(
        r"(?:pypi|npmjs|golang|crates|rubygems|anaconda)[.](?:org|com|io)\b|python[h]osted[.]org|[-]-(?:extra-)?index-url"
    ),
    "a machine path": re.compile(r"(?<![\w.~/-])/(?:root|work|Users|home/\w+)/\w"),
}


def files() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if _is_ours(name)]
        yield from (Path(folder, name) for name in names if _is_ours(name))


def _is_ours(name: str) -> bool:
    return name in OUR_HIDDEN or not (name.startswith(".") or name in NOT_OURS or name.endswith(".egg-info"))


def test_editable_install_and_wheel_take_every_unit_on_disk() -> None:
    build = TOOL["hatch"]["build"]

    assert len(SRC_ROOTS) == 10
    assert sorted(build["dev-mode-dirs"]) == SRC_ROOTS
    assert sorted(build["targets"]["wheel"]["packages"]) == [f"{root}/holdfast" for root in SRC_ROOTS]


def test_both_type_checkers_look_into_every_unit() -> None:
    mypy_roots = TOOL["mypy"]["mypy_path"].replace("$MYPY_CONFIG_FILE_DIR/", "").split(":")

    assert sorted(mypy_roots) == SRC_ROOTS
    assert sorted(TOOL["pyright"]["extraPaths"]) == SRC_ROOTS


def test_import_contracts_know_every_unit() -> None:
    units = sorted(f"holdfast.{package.name}" for package in ROOT.glob("*/*/src/holdfast/[!_]*"))

    assert sorted(TOOL["importlinter"]["root_packages"]) == units


def test_holdfast_itself_stays_a_namespace() -> None:
    strays = [
        path for pattern in ("__init__.py", "py.typed") for path in ROOT.glob(f"*/*/src/holdfast/{pattern}")
    ]

    assert strays == []


@pytest.mark.parametrize("root", SRC_ROOTS)
def test_unit_is_one_typed_package_with_a_docstring(root: str) -> None:
    packages = [path for path in (ROOT / root / "holdfast").iterdir() if path.name != "__pycache__"]

    assert len(packages) == 1
    assert (packages[0] / "py.typed").exists()
    assert (packages[0] / "__init__.py").read_text("utf-8").startswith('"""')


def test_every_dependency_is_pinned_by_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    project = PYPROJECT["project"]
    needed = [
        *project["dependencies"],
        *project["optional-dependencies"]["dev"],
        *PYPROJECT["build-system"]["requires"],
    ]

    assert [line for line in lines if re.fullmatch(r"[A-Za-z0-9._-]+==[^\s;@]+", line) is None] == []
    pinned = {_package_name(line) for line in lines}
    assert {_package_name(requirement) for requirement in needed} - pinned == set()


def _package_name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~;\s]", requirement, maxsplit=1)[0]).lower()


@pytest.mark.parametrize("what", FOREIGN)
def test_no_file_names(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files()
        for match in FOREIGN[what].finditer(path.read_text("utf-8", errors="replace"))
    ]

    assert found == []
