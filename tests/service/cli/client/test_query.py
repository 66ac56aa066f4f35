"""`holdfast client query`: what it prints to the letter, and the files it writes."""

from pathlib import Path

import pytest

from holdfast.cli.client.query import file_name
from tests.infra.fake_plane import FakePlane, Reply, reply
from tests.infra.invocation import client

QUERY = "/v1/query"


def rows(*keys: str, cursor: str = "") -> Reply:
    lines = [f'{{"ns":"default","key":"{key}","ver":3,"doc":{{"k":"{key}","n":1.50}}}}\n' for key in keys]
    more = {"X-Lockd-Query-Cursor": cursor} if cursor else {}
    return Reply(200, "".join(lines).encode(), {"X-Lockd-Query-Return": "documents", **more})


def test_keys_are_a_list_or_lines(plane: FakePlane) -> None:
    plane.then(QUERY, *[reply(200, keys=["a1", "orders/ü"])] * 2)

    as_json = client("query", '/status="open"', "/n>=10")
    as_text = client("query", "-o", "text", '/status="open"')

    assert (as_json.stdout, as_json.stderr, as_json.exit_code) == ('["a1","orders/ü"]\n', "", 0)
    assert as_text.stdout == "a1\norders/ü\n"
    selector = plane.at(QUERY)[0].members()["selector"]
    assert [next(iter(part)) for part in selector["and"]] == ["eq", "range"]


def test_nothing_found_is_an_empty_list_or_nothing(plane: FakePlane) -> None:
    plane.then(QUERY, *[reply(200, namespace="default")] * 2, rows())

    printed = [client("query", *options, "").stdout for options in ([], ["-o", "text"], ["-d"])]

    assert printed == ["[]\n", "", ""]


def test_documents_are_lines_as_they_are_stored(plane: FakePlane) -> None:
    plane.then(QUERY, rows("a", "b"))

    result = client("query", "-d", "-n", "other", "")

    assert result.stdout == '{"k":"a","n":1.50}\n{"k":"b","n":1.50}\n'
    assert plane.at(QUERY)[0].query == {"namespace": "other", "return": "documents"}


def test_one_page_tells_how_to_go_on_and_all_goes_on(plane: FakePlane) -> None:
    pages = [reply(200, keys=["a"], cursor="c$1"), reply(200, keys=["b"])]
    plane.then(QUERY, pages[0], *pages)

    one = client("query", "--limit", "1", "--cursor", "c0", "")
    every = client("query", "--all", "")

    assert (one.stdout, one.stderr) == ('["a"]\n', 'more: --cursor "c\\$1"\n')
    assert (every.stdout, every.stderr) == ('["a","b"]\n', "")
    first = plane.at(QUERY)[0].members()
    assert (first["limit"], first["cursor"]) == (1, "c0")


def test_a_result_goes_to_a_file_as_a_whole(plane: FakePlane, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("old")
    plane.then(QUERY, reply(200, keys=["a"], cursor="c"), reply(500), reply(200, keys=["a"]))

    failed = client("query", "-f", "keys.json", "--all", "")
    kept = (tmp_path / "keys.json").read_text()
    client("query", "-f", "keys.json", "--all", "")

    assert (failed.exit_code, kept) == (1, "old")
    assert (tmp_path / "keys.json").read_text() == '["a"]\n'
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_documents_go_to_files_of_their_own(plane: FakePlane, tmp_path: Path) -> None:
    plane.then(QUERY, rows("a/b", "a-b", "..", "a/b", "ü x"))

    result = client("query", "-F", "deep/out", "")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    contents = {path.name: path.read_text() for path in (tmp_path / "deep" / "out").iterdir()}
    assert contents == {
        "a-b.json": '{"k":"a/b","n":1.50}',
        "a-b-2.json": '{"k":"a-b","n":1.50}',
        "...json": '{"k":"..","n":1.50}',
        "_-x.json": '{"k":"ü x","n":1.50}',
    }


def test_a_long_query_shows_how_far_it_has_come(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.cli.progress.LINE_EVERY_S", 0.0)
    plane.then(QUERY, rows("a", cursor="c"), rows("b"), reply(200, keys=["a"]))

    files = client("query", "--all", "-F", "out", "")
    keys = client("query", "--all", "")

    assert files.stderr.splitlines() == ["query: 1 records, 18B", "query: 2 records, 36B"]
    assert (keys.stdout, keys.stderr) == ('["a"]\n', "query: 1 records, 4B\n")


@pytest.mark.parametrize(
    ("key", "expected"),
    [("orders/1", "orders-1"), ("a\\b c", "a-b-c"), ("é:*?\0", "_____"), ("A.b_c-9", "A.b_c-9")],
)
def test_a_key_becomes_a_file_name(key: str, expected: str) -> None:
    assert file_name(key) == expected


@pytest.mark.parametrize(
    "arguments",
    [[], ["-d", "-o", "text", ""], ["-F", "d", "-f", "f", ""], ["--limit", "0", ""], ["-o", "xml", ""]],
)
def test_options_that_do_not_go_together_are_told(plane: FakePlane, arguments: list[str]) -> None:
    result = client("query", *arguments)

    assert result.exit_code == 2
    assert plane.seen == []


def test_a_wrong_selector_fails_before_any_request(plane: FakePlane) -> None:
    result = client("query", "/a")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: invalid_selector ('/a' compares nothing")
    assert plane.seen == []


def test_what_the_server_refuses_is_one_line(plane: FakePlane) -> None:
    plane.then(QUERY, reply(400, error="invalid_cursor", detail="not mine"))

    result = client("query", "--cursor", "x", "")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: invalid_cursor (not mine)\n"
