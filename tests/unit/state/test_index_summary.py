"""Summaries of large documents: never too little, and little too much."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.lql.document.value import parse_document
from holdfast.lql.selector.evaluation import matches
from holdfast.lql.selector.json import Json, selector_from_json
from holdfast.state.layer.index import summary as index_summary
from holdfast.state.layer.index.plan import Planner
from holdfast.state.layer.index.summary import Summary
from holdfast.state.layer.index.terms import ONLY_PARTIAL, Terms
from holdfast.state.layer.index.text import add_entries
from holdfast.state.layer.index.worker import summary_of
from tests.infra.examples import examples
from tests.service.state.query_cases import Cases

NOW_NS = 1_700_000_000 * 10**9
SECRETS = (None, b"secret")


def compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def may_match(text: bytes, selector: Any, secret: bytes | None = None) -> bool:
    terms = Terms(secret)
    plan = Planner(terms, now_ns=NOW_NS).plan(selector_from_json(selector))
    return Summary(summary_of(terms, text)).may_match(plan)


@pytest.mark.parametrize("secret", SECRETS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(150), deadline=None)
def test_a_summary_lets_everything_through_that_matches(secret: bytes | None, seed: int) -> None:
    cases = Cases(seed)
    text = cases.document()
    for _ in range(20):
        selector = cases.selector()
        if matches(selector_from_json(selector), parse_document(text), now_ns=NOW_NS):
            assert may_match(text, selector, secret), f"{selector} on {text!r}"


@pytest.mark.parametrize("secret", SECRETS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_tokens_give_the_entries_that_the_parsed_document_gives(secret: bytes | None, seed: int) -> None:
    text = Cases(seed).document()
    terms = Terms(secret)
    expected = terms.of_text(text)
    found: set[bytes] = set()

    add_entries(terms, text, found.add)

    assert found >= expected or expected == ONLY_PARTIAL


def test_terms_that_the_document_does_not_have_are_mostly_kept_out() -> None:
    text = compact({"status": "open", "rows": [{"id": number} for number in range(5000)]})

    terms = Terms(None)
    summary = Summary(summary_of(terms, text))
    planner = Planner(terms, now_ns=NOW_NS)
    others: list[Json] = [{"eq": {"field": "/status", "value": f"other-{number}"}} for number in range(50)]
    passed = sum(summary.may_match(planner.plan(selector_from_json(other))) for other in others)

    assert passed < 10


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"range": {"field": "/n", "gte": 5, "lt": 7}}, True),
        ({"range": {"field": "/n", "gt": 6}}, False),
        ({"range": {"field": "/n", "lt": 4}}, False),
        ({"prefix": {"field": "/name", "value": "al"}}, True),
        ({"prefix": {"field": "/name", "value": "zz"}}, False),
        ({"exists": "/items"}, True),
        ({"exists": "/missing"}, False),
        ({"date": {"field": "/at", "after": "2026-02-01T00:00:00Z"}}, False),
        ({"date": {"field": "/at", "before": "2026-02-01T00:00:00Z"}}, True),
        ({"contains": {"field": "/name", "value": "anything"}}, True),
        ({"contains": {"field": "/missing", "value": "anything"}}, False),
        ({"and": [{"eq": {"field": "/name", "value": "alice"}}, {"exists": "/missing"}]}, False),
        ({"or": [{"eq": {"field": "/name", "value": "alice"}}, {"exists": "/missing"}]}, True),
        ({"not": {"exists": "/missing"}}, True),
    ],
)
def test_spans_are_told_by_the_smallest_and_the_largest_value(selector: Any, expected: bool) -> None:
    text = compact(
        {"n": 5, "name": "alice", "at": "2026-01-31T10:00:00Z", "items": [], "m": {"n": 6}, "z": 6}
    )

    assert may_match(text, selector) is expected


def test_a_document_with_too_many_paths_is_still_told_by_its_terms() -> None:
    text = compact({f"f{number}": number for number in range(index_summary.PATHS_MAX + 1)})

    assert may_match(text, {"exists": "/missing"})
    assert not may_match(text, {"eq": {"field": "/f1", "value": "what it is not"}})


def test_a_document_that_says_more_than_fits_lets_everything_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_summary, "ENTRIES_MAX", 10)

    summary = summary_of(Terms(), compact({"rows": list(range(100))}))

    assert summary == b""
    assert Summary(summary).may_match(Planner(Terms(), now_ns=0).plan(selector_from_json({"exists": "/no"})))


@pytest.mark.parametrize("text", [b"[1,2]", b'"text"', b"7", b"null", b"[]"])
def test_what_is_no_object_matches_nothing(text: bytes) -> None:
    assert not may_match(text, {"exists": "/a"})
