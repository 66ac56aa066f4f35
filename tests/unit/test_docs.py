"""What the pages say is there, is there; what they tell to type, works."""

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.storage.opening import open_store
from tests.system.cli import environment, serving
from tests.unit.test_tree import ROOT, files

PAGES = sorted(path for path in files() if path.suffix == ".md")
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
README = (ROOT / "README.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"\b(?:services|libs|clients|tests|docs|deploy)/[\w./-]*\w")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
TIMEOUT_S = 120


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


def console_commands(page: Path) -> list[list[str]]:
    """The commands of a page's console blocks that need nothing but the package and a folder."""
    blocks = [block for language, block in FENCE.findall(page.read_text("utf-8")) if language == "console"]
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    commands = [shlex.split(line, comments=True) for line in lines]
    return [words for words in commands if words[0] in {"mkdir", ".venv/bin/holdfast"}]


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


def test_every_make_target_that_a_page_names_exists() -> None:
    named = {target for page in PAGES for code in typed(page) for target in MAKE.findall(code)}

    assert named - TARGETS == set()


def test_bare_make_prints_every_target() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert set(MAKE.findall(printed.stdout)) >= TARGETS
    assert {"serve", "test", "test-all", "lint", "types", "bench", "docs", "clean"} <= TARGETS


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


@pytest.mark.parametrize("name", ["README.md", "docs/how-to/backup-and-restore.md"])
async def test_commands_of_a_page_run_one_after_the_other(tmp_path: Path, name: str) -> None:
    commands = console_commands(ROOT / name)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    async with open_store(f"disk://{tmp_path}/.local/share/holdfast/store"):
        pass  # As `make serve` leaves it.

    for words in commands:
        program = words[0].replace(".venv/bin", str(Path(sys.executable).parent))
        done = await asyncio.to_thread(
            subprocess.run,
            [program, *words[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{words}: {done.stderr.decode()}"

    assert commands, "the page shows no command that can be tried"


async def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = [block for language, block in FENCE.findall(README) if language == "python"]

    for block in blocks:
        code = block.replace("disk:///var/lib/holdfast", f"disk://{tmp_path}")
        # With this flag the code may await outside of a function, and gives a coroutine then.
        running = eval(compile(code, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})
        if inspect.isawaitable(running):
            await running

    assert blocks, "the README shows no Python"


def test_the_first_lease_of_the_readme_works_against_a_plane(tmp_path: Path) -> None:
    (block,) = [block for language, block in FENCE.findall(README) if language == "sh"]
    with serving(tmp_path, "--listen", "127.0.0.1:0") as server:
        script = block.replace("http://127.0.0.1:9341", server.url)
        script = script.replace("$PWD/.venv/bin", str(Path(sys.executable).parent))
        ran = subprocess.run(
            ["sh", "-e", "-c", script],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    assert ran.returncode == 0, ran.stderr
    assert '"n": 1.10' in ran.stdout
    assert ran.stdout.endswith("nobody else runs this now\n")
