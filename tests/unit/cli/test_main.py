"""The command line as a whole: late loading, one line per error, and a status for each kind of end."""

import errno
import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.main import app
from holdfast.storage.errors import StoreFull

COMMANDS = [
    [],
    ["serve"],
    ["version"],
    ["config"],
    ["config", "gen"],
    ["config", "show"],
    ["store"],
    *(
        ["store", name]
        for name in (
            "backup",
            "restore",
            "verify",
            "export",
            "import",
            "migrate",
            "sweep",
            "compact",
        )
    ),
    *([name] for name in ("lql", "client", "queue", "txn", "tc", "namespace", "index", "lock", "bench")),
    ["tc", "trust"],
    ["namespace", "get"],
    ["namespace", "set"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])

    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_shows_an_example(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])

    assert "Example" in result.output


def test_help_has_a_short_name_everywhere() -> None:
    whole = CliRunner().invoke(app, ["-h"])
    part = CliRunner().invoke(app, ["queue", "dlq", "list", "-h"])

    assert (whole.exit_code, part.exit_code) == (0, 0)
    assert "Usage: holdfast queue dlq list" in part.output


@pytest.mark.parametrize(
    "command", [["serve"], ["store"], ["config"], ["lql"], ["queue"], ["tc"], ["bench"]], ids=" ".join
)
def test_completion_is_offered_for_the_whole_program_only(command: list[str]) -> None:
    whole = CliRunner().invoke(app, ["--help"])
    part = CliRunner().invoke(app, [*command, "--help"])

    assert "--install-completion" in whole.output
    assert "--install-completion" not in part.output


def test_version_tells_both_ways() -> None:
    as_text = CliRunner().invoke(app, ["version"])
    as_json = CliRunner().invoke(app, ["version", "--output", "json"])

    told = json.loads(as_json.output)
    assert as_text.output == f"holdfast {told['version']} (Python {told['python']})\n"


@pytest.mark.parametrize("arguments", [["sevre"], ["version", "--no-such"], ["version", "--output", "xml"]])
def test_wrong_usage_ends_with_status_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_mistyped_command_is_guessed() -> None:
    assert "'serve'" in CliRunner().invoke(app, ["sevre"]).stderr


def importing(error: BaseException) -> Callable[[str], SimpleNamespace]:
    """An import that finds a module whose command ends like this."""
    failing = typer.Typer()

    @failing.command()
    def fail() -> None:
        raise error

    def found(name: str) -> SimpleNamespace:
        return SimpleNamespace(app=failing)

    return found


def test_an_expected_error_is_one_line_and_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "import_module", importing(StoreFull("no room; free some")))

    result = CliRunner().invoke(app, ["store"])

    assert (result.exit_code, result.stderr) == (1, "error: no room; free some (storage_full)\n")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENAMETOOLONG, "File name too long", "aaa"), "error: aaa: File name too long\n"),
        (OSError(errno.ENOSPC, "No space left on device"), "error: No space left on device\n"),
    ],
)
def test_an_error_of_the_operating_system_is_one_line_and_status_1(
    error: OSError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "import_module", importing(error))

    result = CliRunner().invoke(app, ["store"])

    assert (result.exit_code, result.stderr) == (1, told)


def test_a_reader_that_went_away_is_no_error_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "import_module", importing(BrokenPipeError(errno.EPIPE, "Broken pipe")))

    result = CliRunner().invoke(app, ["store"])

    assert (result.exit_code, result.stderr) == (141, "")


def test_a_reader_that_went_away_from_a_task_is_no_error_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ExceptionGroup("tasks", [BrokenPipeError(errno.EPIPE, "Broken pipe")])
    monkeypatch.setattr(main, "import_module", importing(error))

    result = CliRunner().invoke(app, ["store"])

    assert (result.exit_code, result.stderr) == (141, "")


def test_ctrl_c_is_one_line_and_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "import_module", importing(KeyboardInterrupt()))

    result = CliRunner().invoke(app, ["store"])

    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("txn_id", ["", " "])
def test_an_empty_transaction_is_refused_before_anything_is_sent(txn_id: str) -> None:
    result = CliRunner().invoke(app, ["queue", "enqueue", "-q", "jobs", "--data", "x", "--txn-id", txn_id])

    assert result.exit_code == 2
    assert "--txn-id is empty" in result.output
