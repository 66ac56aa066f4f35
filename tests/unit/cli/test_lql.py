"""`holdfast lql`: what each command prints, and how it fails."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app


def lql(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(app, ["lql", *arguments], input=given)


def test_parse_prints_the_selector_as_json_or_text() -> None:
    assert json.loads(lql("parse", "/a=1").stdout) == {"eq": {"field": "/a", "value": "1"}}
    assert lql("parse", "--output", "text", "/a=1", "/b>2").stdout == '/a="1",/b>2\n'
    assert lql("parse", "--json", '{"exists":"/a"}', "--output", "text").stdout == 'exists{"/a"}\n'
    assert json.loads(lql("parse", "--url", "?exists=%2Fa&limit=5").stdout) == {"exists": "/a"}


def test_parse_says_what_is_wrong_and_where() -> None:
    result = lql("parse", "/a=1,/b")

    assert result.exit_code == 1
    assert "at character 6" in result.stderr
    assert result.stderr.endswith("(invalid_selector)\n")


def test_eval_reads_the_document_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"n":7}')

    assert lql("eval", "/n>5", "--file", str(tmp_path / "order.json")).stdout == "true\n"
    assert lql("eval", "/n>5", given='{"n":5}').stdout == "false\n"
    assert json.loads(lql("eval", "", "--output", "json", given="[]").stdout) == {"matches": True}
    assert (
        lql("eval", "date{f=/d,since=now}", "--now", "2025-01-01", given='{"d":"2025-01-02"}').stdout
        == "true\n"
    )


def test_mutate_prints_the_changed_document(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hi")

    assert lql("mutate", "/a++", "/b=x,y", given='{"n":1.50}').stdout == '{"n":1.50,"a":1,"b":"x,y"}\n'
    assert lql("mutate", "--script", "/a=1,/b=2", given="").stdout == '{"a":1,"b":2}\n'
    assert lql("mutate", f"file:/a={tmp_path}/note.txt", given="{}").stdout == '{"a":"hi"}\n'
    assert lql("mutate", "time:/t=NOW", "--now", "2025-01-01T00:00:00Z", given="{}").stdout == (
        '{"t":"2025-01-01T00:00:00Z"}\n'
    )


@pytest.mark.parametrize(
    ("arguments", "given", "code"),
    [
        (("mutate", "/a"), "{}", "invalid_mutations"),
        (("mutate", "/a++"), '{"a":"x"}', "invalid_body"),
        (("mutate", "/a++"), "{", "invalid_body"),
        (("mutate", "file:/a=missing.txt"), "{}", "invalid_mutations"),
        (("eval", "/a=1"), "{", "invalid_body"),
        (("eval", "/a=1", "--file", "missing.json"), "", "invalid_body"),
    ],
)
def test_errors_are_one_line_with_their_code(arguments: tuple[str, ...], given: str, code: str) -> None:
    result = lql(*arguments, given=given)

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(f"({code})\n")


def test_a_time_that_is_none_is_a_wrong_parameter() -> None:
    assert lql("eval", "", "--now", "soon", given="{}").exit_code == 2


def test_vectors_ends_with_the_totals(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"id":"one","text":"/a=1","ast":{"eq":{"field":"/a","value":"1"}}}\n\n')
    bad.write_text('{"id":"two","text":"/a=1","error":true}\nnonsense\n')

    passed = lql("vectors", str(good))
    failed = lql("vectors", str(good), str(bad))

    assert (passed.exit_code, passed.stdout) == (0, "1 passed, 0 failed\n")
    assert failed.exit_code == 1
    assert failed.stdout.splitlines()[-1] == "1 passed, 2 failed"
    assert failed.stdout.startswith("two: accepted as ")


def test_vectors_of_a_file_that_cannot_be_read_fail(tmp_path: Path) -> None:
    (tmp_path / "binary.jsonl").write_bytes(b"\xff")

    assert lql("vectors", str(tmp_path / "missing.jsonl")).exit_code == 1
    assert lql("vectors", str(tmp_path / "binary.jsonl")).exit_code == 1
