"""The examples of `--help`: every one is a call that the program understands."""

import shlex
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer

from holdfast.cli.main import app
from tests.promises.sentences import HELP, sentences_of

# What an example says beside its words: they stand for something of the user's.
FILES = ("order.json", "selectors.jsonl", "matches.jsonl", "mutations.jsonl", "other-ca.pem")


def examples() -> list[list[str]]:
    """The words of every example behind `holdfast`, each once."""
    sentences = [sentence for name in HELP for sentence in sentences_of(name) if ": Example" in sentence]
    texts = [sentence.partition(":  ")[2].replace('eval "$(', "").replace(')"', "") for sentence in sentences]
    calls: dict[tuple[str, ...], None] = {}
    for text in texts:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";|>")
        lexer.whitespace_split = True
        for is_separator, words in groupby(lexer, lambda word: word in (";", "|", ">")):
            call = tuple(words)
            if not is_separator and call[0] == "holdfast":
                calls[call[1:]] = None
    return [list(call) for call in calls]


def understood(words: list[str]) -> None:
    """Parse a call down to its last command, without running it."""
    command: Any = typer.main.get_command(app)
    context: Any = command.make_context("holdfast", list(words))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(
            context, [*getattr(context, "_protected_args", []), *context.args]
        )
        if rest == ["--help"]:
            return
        context = command.make_context(name, rest, parent=context)


def test_there_are_many_examples() -> None:
    assert len(examples()) > 80


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_every_example_is_understood(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).touch()

    understood(["serve" if word == "COMMAND" else word for word in words])
