"""The manifest of each page: which test shows which sentence. `python -m tests.promises.manifest` brings it up to date.

A line that begins with `- ` is a sentence; the lines below it, indented, say what shows it:

    tests/…/test_x.py::test_name   a test; several lines for several tests
    make lint                      a check of the Makefile
    explains                       the sentence names no behaviour: a definition, a reason, a way to another page
"""

import re
from pathlib import Path
from typing import Final

from tests.promises.sentences import HELP, PAGES, sentences_of

FOLDER: Final = Path(__file__).parent
UNKNOWN: Final = "?"


def manifest_path(name: str) -> Path:
    return FOLDER / f"{re.sub(r'[^A-Za-z0-9]+', '-', name.removesuffix('.md'))}.txt"


def read_manifest(name: str) -> dict[str, list[str]]:
    """What shows each sentence; empty without a manifest."""
    path = manifest_path(name)
    shown: dict[str, list[str]] = {}
    current: list[str] = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        if line.startswith("- "):
            current = shown.setdefault(line[2:], [])
        elif line.strip():
            current.append(line.strip())
    return shown


def write_manifest(name: str) -> int:
    """Sentences in the order of the page; what is known stays. The number of those that nothing shows."""
    known = read_manifest(name)
    lines: list[str] = []
    unknown_count = 0
    for sentence in sentences_of(name):
        shown = known.get(sentence) or [UNKNOWN]
        unknown_count += UNKNOWN in shown
        lines += [f"- {sentence}", *(f"    {shower}" for shower in shown)]
    manifest_path(name).write_text("\n".join(lines) + "\n", "utf-8")
    return unknown_count


def main() -> None:
    for name in (*PAGES, *HELP):
        print(f"{write_manifest(name):4} unknown of {len(sentences_of(name)):4}  {name}")  # noqa: T201


if __name__ == "__main__":
    main()
