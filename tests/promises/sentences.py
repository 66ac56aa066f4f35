"""The sentences of the pages and of `--help`, each as one line of plain text."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from holdfast.cli.main import _COMMANDS, app
from tests.unit.test_tree import ROOT

PAGES: Final = (
    "README.md",
    "ARCHITECTURE.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "how-to").glob("*.md")),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "explanation").glob("*.md")),
)
HELP: Final = ("holdfast", *_COMMANDS)

_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_END: Final = re.compile(r"(?<=[.!?])\)?\s+(?=[A-Z`\"*\[(])")
_ITEM: Final = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_RULE: Final = re.compile(r"^\|[\s|:-]+\|$")


def sentences_of(name: str) -> list[str]:
    """Of a page, or of a command and all that is below it. Each once, in order."""
    found = _of_page(ROOT / name) if name.endswith(".md") else _of_help(name)
    return list(dict.fromkeys(found))


def _of_page(path: Path) -> Iterator[str]:
    for block in _blocks(_FENCE.sub("", path.read_text("utf-8"))):
        if block.startswith("|"):
            yield block
        else:
            yield from _END.split(block)


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and rows of tables, each in one line; headings say nothing."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_row = line.startswith("|")
        if not line.strip() or is_row or line.startswith("#") or _ITEM.match(line):
            if lines:
                yield " ".join(lines)
            lines = []
        if is_row and not _RULE.match(line):
            yield line
        elif line.strip() and not is_row and not line.startswith("#"):
            lines.append(_ITEM.sub("", line).strip())


def _of_help(name: str) -> Iterator[str]:
    """What a command says of itself, then what it says of each option."""
    if name == "holdfast":
        yield from _of_command(typer.main.get_command(app), name, is_deep=False)
        return
    command = typer.main.get_command(import_module(_COMMANDS[name][0]).app)
    yield from _of_command(command, f"holdfast {name}", is_deep=True)


def _of_command(command: Any, title: str, *, is_deep: bool) -> Iterator[str]:
    """Typer may bring its own copy of click, so its types can't be named here."""
    for text in (command.help, command.epilog):
        for line in _blocks(text or ""):
            yield from (f"{title}: {sentence}" for sentence in _END.split(line))
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if text and not getattr(parameter, "hidden", False):
            yield f"{'/'.join([*parameter.opts, *parameter.secondary_opts])}: {' '.join(text.split())}"
    if is_deep:
        for name, inner in getattr(command, "commands", {}).items():
            if title == "holdfast client" and name in _COMMANDS:
                continue  # The same command under two names.
            yield from _of_command(inner, f"{title} {name}", is_deep=True)
