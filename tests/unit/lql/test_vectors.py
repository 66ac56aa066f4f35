"""The conformance vectors that lie beside the project, and what counts as passing one."""

import json
from pathlib import Path

import pytest

from holdfast.lql.vector import run_vector, same_json

VECTORS = Path(__file__).parents[4] / "shared" / "spec" / "vectors"


def test_every_vector_beside_the_project_passes() -> None:
    lines = [
        line
        for file in sorted(VECTORS.glob("*.jsonl"))
        for line in file.read_text("utf-8").split("\n")
        if line
    ]

    outcomes = [run_vector(line) for line in lines]

    assert [outcome for outcome in outcomes if outcome.problem] == []


@pytest.mark.parametrize(
    "vector",
    [
        {"text": "/a=1", "ast": {"eq": {"field": "/a", "value": "1"}}},
        {"text": "/a=", "error": True},
        {"params": [["exists", "/n"], ["limit", "5"]], "ast": {"exists": "/n"}},
        {"selector": "/n>4", "ast": {"range": {"field": "/n", "gt": 4}}, "doc": {"n": 5}, "matches": True},
        {
            "mutations": ["/n++"],
            "mode": "exprs",
            "now": "2026-01-01T00:00:00Z",
            "doc": {"n": 1},
            "result": {"n": 2.0},
        },
        {"mutations": ["/n"], "mode": "exprs", "now": "2026-01-01T00:00:00Z", "doc": {}, "error": True},
    ],
)
def test_a_vector_that_says_the_truth_passes(vector: dict[str, object]) -> None:
    assert run_vector(json.dumps({"id": "x", **vector})).problem == ""


@pytest.mark.parametrize(
    "vector",
    [
        {"text": "/a=1", "ast": {"eq": {"field": "/a", "value": "2"}}},
        {"text": "/a=1", "error": True},
        {"text": "/a=", "ast": {}},
        {"ast": {"exists": "/n"}, "doc": {"n": 5}, "matches": False},
        {"ast": {"exists": "n"}, "doc": {"n": 5}, "matches": False},
        {
            "mutations": ["/n=true"],
            "mode": "exprs",
            "now": "2026-01-01T00:00:00Z",
            "doc": {},
            "result": {"n": 1},
        },
        {"mutations": ["/n=1"], "mode": "exprs", "now": "2026-01-01T00:00:00Z", "doc": {}, "error": True},
        {
            "mutations": ["/n=1"],
            "mode": "other",
            "now": "2026-01-01T00:00:00Z",
            "doc": {},
            "result": {"n": 1},
        },
        {"mutations": ["/n=1"], "mode": "exprs", "now": "soon", "doc": {}, "result": {"n": 1}},
        {"unknown": 1},
    ],
)
def test_a_vector_that_does_not_fails_and_says_why(vector: dict[str, object]) -> None:
    outcome = run_vector(json.dumps({"id": "x", **vector}))

    assert (outcome.id, bool(outcome.problem)) == ("x", True)


@pytest.mark.parametrize("line", ["", "{", "[]", "1", '{"text":"/a=1"}', '{"id":1}'])
def test_a_line_that_is_no_vector_fails(line: str) -> None:
    assert run_vector(line).problem != ""


def test_numbers_are_equal_by_value_and_booleans_are_no_numbers() -> None:
    assert same_json({"a": [1, "x", None]}, {"a": [1.0, "x", None]})
    assert not same_json({"a": 1}, {"a": True})
    assert not same_json([1], [1, 2])
