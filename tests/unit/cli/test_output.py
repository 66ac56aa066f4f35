"""`--output` is a format everywhere, a file is written only by an option that names a file, and tables have JSON."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli import main

FILE_OPTIONS = {"--file", "--payload-out", "--lines", "--out", "--directory", "--config", "--bundle"}

WITHOUT_RESULT = {
    "serve": "runs until it is stopped",
    "lock": "prints what its command prints",
    "config gen": "prints a file",
    "client edit": "prints a document",
    "client attachments get": "prints a file",
    "lql mutate": "prints a document",
    "lql vectors": "prints a line per failure",
    "store export": "prints an archive of JSON lines",
    "tc trust add": "prints what it wrote",
    "tc ca-export": "prints a certificate",
}


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by the words that call it."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*words, name))
    else:
        yield " ".join(words), command


def all_commands() -> dict[str, Any]:
    found: dict[str, Any] = {"version": typer.main.get_command(main.app).commands["version"]}  # type: ignore[attr-defined]
    for name, (module, _) in main._COMMANDS.items():
        found.update(leaves(typer.main.get_command(import_module(module).app), (name,)))
    return found


COMMANDS = all_commands()


def option(command: Any, flag: str) -> Any:
    return next((item for item in command.params if flag in item.opts), None)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_short_o_is_the_format_or_says_that_it_is_a_file(name: str) -> None:
    short = option(COMMANDS[name], "-o")

    if short is not None and "--output" not in short.opts:
        assert set(short.opts) & FILE_OPTIONS
        assert "FILE" in short.metavar


def test_every_command_that_prints_a_result_has_a_format_for_it() -> None:
    assert set(WITHOUT_RESULT) == {name for name in COMMANDS if option(COMMANDS[name], "--output") is None}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_RESULT])
def test_an_unknown_format_is_refused_with_those_there_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    result = CliRunner().invoke(main.app, [*name.split(), "--output", "xml"])

    assert result.exit_code == 2
    assert all(f"'{word}'" in result.stderr for word in ("xml", "json"))
    assert list(tmp_path.iterdir()) == []
