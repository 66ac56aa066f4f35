"""`holdfast client set|mutate|edit`: one round trip, values from files, documents without a server."""

import json
import stat
from pathlib import Path

import pytest

from tests.infra.fake_plane import FakePlane, reply
from tests.infra.invocation import client

WRITTEN = reply(200, new_version=1, new_state_etag="e", bytes=7, metadata={})


def test_set_takes_one_round_trip(held: FakePlane) -> None:
    held.then("/v1/mutate", WRITTEN)
    before = len(held.seen)

    result = client("set", "/n++", "/a=b,c", "--if-version", "3")

    (request,) = held.seen[before:]
    assert (request.path, request.members()) == ("/v1/mutate", {"mutations": ["/n++", "/a=b,c"]})
    assert request.headers["x-if-version"] == "3"
    assert result.stdout == '{\n  "bytes": 7,\n  "etag": "e",\n  "version": 1\n}\n'


def test_values_from_files_are_read_here(held: FakePlane, tmp_path: Path) -> None:
    (tmp_path / "number.txt").write_text("42")
    (tmp_path / "photo").write_bytes(b"\xff\x00")

    client("set", "file:/n=number.txt", "base64file:/photo=photo", "/k=1")
    first = held.at("/v1/update")[0]
    client("set", "textfile:/n=~/number.txt")
    second = held.at("/v1/update")[1]
    client("set", "--no-cas", "textfile:/n=number.txt")

    assert first.members() == {"n": "42", "photo": "/wA=", "k": 1}
    assert held.at("/v1/mutate") == []
    assert "x-if-version" not in first.headers
    assert second.headers["x-if-version"] == "1"
    assert "x-if-version" not in held.at("/v1/update")[2].headers


@pytest.mark.parametrize("command", [["set"], ["mutate", "--local"]])
def test_what_is_wrong_is_told_before_anything_is_sent(held: FakePlane, command: list[str]) -> None:
    before = len(held.seen)

    result = client(*command, "no-slash=1")

    assert (result.exit_code, len(held.seen)) == (1, before)
    assert "(invalid_mutations)" in result.stderr


def test_a_file_that_is_not_there_is_told(held: FakePlane) -> None:
    result = client("set", "file:/n=absent")

    assert result.exit_code == 1
    assert "cannot read the file absent" in result.stderr


def test_mutate_local_reads_changes_and_insists(held: FakePlane) -> None:
    client("mutate", "--local", "/n++")
    first = held.at("/v1/update")[0].headers
    result = client("mutate", "--local", "/n++", "/status=done")

    second = held.at("/v1/update")[1]
    assert "x-if-version" not in first
    assert second.members() == {"n": 2, "status": "done"}
    assert (second.headers["x-if-version"], result.exit_code) == ("1", 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_edit_sorts_and_indents_and_keeps_numbers(folder: Path) -> None:
    piped = client("edit", "/n=2", text='{"z":1.10,"a":[{"y":1,"x":99999999999999999999}],"e":{}}')

    assert piped.stdout == (
        '{\n  "a": [\n    {\n      "x": 99999999999999999999,\n      "y": 1\n    }\n  ],\n'
        '  "e": {},\n  "n": 2,\n  "z": 1.10\n}\n'
    )


def test_edit_of_nothing_starts_with_an_empty_document(folder: Path) -> None:
    assert client("edit", "/n=2", text="").stdout == '{\n  "n": 2\n}\n'


def test_edit_replaces_a_file_and_keeps_its_mode_and_its_link(folder: Path) -> None:
    document = folder / "order.json"
    document.write_text('{"n":1}')
    document.chmod(0o640)
    (folder / "link.json").symlink_to("order.json")
    (folder / "note").write_text("é")

    result = client("edit", "-f", "link.json", "/status=open", "file:/note=note")

    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(document.read_text("utf-8")) == {"n": 1, "note": "é", "status": "open"}
    assert stat.S_IMODE(document.stat().st_mode) == 0o640
    assert (folder / "link.json").is_symlink()
    assert sorted(path.name for path in folder.iterdir()) == ["link.json", "note", "order.json"]


@pytest.mark.parametrize(
    ("content", "mutation"),
    [("[1]", "/n=1"), ('{"n":"x"}', "/n++"), ("{", "/n=1"), ("{}", "checkpoint.json")],
    ids=["no object", "no number", "no JSON", "no mutation"],
)
def test_an_edit_that_fails_leaves_the_file_as_it_was(folder: Path, content: str, mutation: str) -> None:
    (folder / "order.json").write_text(content)

    result = client("edit", "-f", "order.json", mutation)

    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert (folder / "order.json").read_text() == content
    assert [path.name for path in folder.iterdir()] == ["order.json"]


def test_edit_of_a_file_that_is_not_there_is_told(folder: Path) -> None:
    result = client("edit", "-f", "absent.json", "/n=1")

    assert (result.exit_code, result.stderr) == (1, "error: absent.json: No such file or directory\n")
