"""Every sentence of the pages and of `--help` that names a behaviour is shown by a test (`tests/promises`)."""

import re

import pytest

from tests.promises.manifest import FOLDER, manifest_path, read_manifest
from tests.promises.sentences import HELP, PAGES, sentences_of
from tests.unit.test_tree import ROOT

# What was not gone through yet; to be emptied, never to be added to.
INCOMPLETE: set[str] = set()
NAMES = tuple(name for name in (*PAGES, *HELP) if name not in INCOMPLETE)
HINT = "run python -m tests.promises.manifest, then name what shows each sentence"


@pytest.mark.parametrize("name", NAMES)
def test_every_sentence_is_in_the_manifest_of_its_page(name: str) -> None:
    assert list(read_manifest(name)) == sentences_of(name), HINT


@pytest.mark.parametrize("name", NAMES)
def test_every_sentence_is_shown_by_something_that_exists(name: str) -> None:
    missing = [
        f"{sentence}: {shower}"
        for sentence, showers in read_manifest(name).items()
        for shower in showers or ["nothing"]
        if not exists(shower)
    ]

    assert missing == [], HINT


def test_no_manifest_is_left_of_a_page_that_is_gone() -> None:
    assert {path.name for path in FOLDER.glob("*.txt")} <= {
        manifest_path(name).name for name in (*PAGES, *HELP)
    }


def exists(shower: str) -> bool:
    if shower == "explains":
        return True
    if target := re.fullmatch(r"make ([a-z-]+)", shower):
        return f"\n{target[1]}:" in (ROOT / "Makefile").read_text("utf-8")
    path, _, test = shower.partition("::")
    file = ROOT / path
    return file.is_file() and bool(re.search(rf"\bdef {re.escape(test)}\(", file.read_text("utf-8")))
