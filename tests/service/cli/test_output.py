"""`get` prints a document of a plane in the format asked for, and writes only files that are named."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import main
from tests.infra.fake_plane import FakePlane
from tests.infra.invocation import client


@pytest.mark.parametrize(
    ("flag", "shown"), [("yaml", "n: 1\n"), ("json", '{\n  "n": 1\n}\n'), ("raw", '{"n":1}')]
)
def test_get_prints_a_document_in_the_format_asked_for(
    flag: str, shown: str, held: FakePlane, tmp_path: Path
) -> None:
    client("update", text='{"n":1}')

    result = client("get", "--output", flag)

    assert (result.exit_code, result.stdout) == (0, shown)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--file", "-f", "-o"])
def test_get_writes_a_file_that_is_named(flag: str, held: FakePlane, tmp_path: Path) -> None:
    client("update", text='{"n":1}')

    result = client("get", flag, "order.yaml")

    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / "order.yaml").read_text() == "n: 1\n"


@pytest.mark.parametrize(
    "command",
    [
        ["client", "get", "-o"],
        ["client", "attachments", "get", "--name", "a", "-o"],
        ["queue", "dequeue", "-q", "jobs", "-o"],
    ],
)
@pytest.mark.parametrize("word", ["yaml", "json", "text"])
def test_a_format_in_the_place_of_a_file_is_refused(
    command: list[str], word: str, held: FakePlane, tmp_path: Path
) -> None:
    result = CliRunner().invoke(main.app, [*command, word])

    assert result.exit_code == 2
    assert f"./{word}" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_type_and_another_format_exclude_each_other(held: FakePlane) -> None:
    result = client("get", "--type", "raw", "--output", "yaml")

    assert result.exit_code == 2
