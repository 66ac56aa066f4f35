"""What the pages say is there, is there."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_tree import ROOT, files

PAGES = sorted(path for path in files() if path.suffix == ".md")
MODULES = [path for path in files() if path.suffix == ".py"]
PATHS = [(f"/{module.relative_to(ROOT)}", module) for module in MODULES]
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
README = (ROOT / "README.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"\b(?:services|libs|clients|tests|docs|deploy)/[\w./-]*\w")
MODULE = re.compile(r"([\w./-]+\.py)(?:::(\w+))?")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")


def links(page: Path) -> Iterator[str]:
    prose = FENCE.sub("", page.read_text("utf-8"))
    return (link for link in LINK.findall(prose) if not re.match(r"[a-z]+:", link))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def typed(page: Path) -> Iterator[str]:
    """Everything between backticks: code blocks and code in a line."""
    text = page.read_text("utf-8")
    yield from (block for _, block in FENCE.findall(text))
    yield from re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_and_every_test_that_a_page_names_exists(page: Path) -> None:
    missing: list[str] = []
    for code in typed(page):
        named = PATH.match(code)
        if named is None:
            continue
        path, test = ROOT / named[0], code.partition("::")[2]
        if not path.exists() or (test and f"def {test}(" not in path.read_text("utf-8")):
            missing.append(code)

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_by_its_last_part_exists(page: Path) -> None:
    missing: list[str] = []
    for code in typed(page):
        named = MODULE.fullmatch(code)
        if named is None:
            continue
        found = [module for path, module in PATHS if path.endswith(f"/{named[1]}")]
        if not found or (
            named[2] and not any(f"def {named[2]}(" in module.read_text("utf-8") for module in found)
        ):
            missing.append(code)

    assert missing == []


def test_every_make_target_that_a_page_names_exists() -> None:
    named = {target for page in PAGES for code in typed(page) for target in MAKE.findall(code)}

    assert named - TARGETS == set()


def test_readme_names_the_two_commands_a_newcomer_needs() -> None:
    assert "$ make serve" in README
    assert "$ make test" in README


def test_ci_runs_lint_types_and_the_test_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"

    assert os.access(script, os.X_OK)
    assert re.findall(r"^make .*$", script.read_text("utf-8"), re.MULTILINE) == [
        "make lint",
        "make types",
        "make test",
    ]


def test_every_decision_says_context_decision_and_consequences() -> None:
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name)
        assert {"context", "decision", "consequences"} <= anchors(page), page.name
