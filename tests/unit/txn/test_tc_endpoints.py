"""One spelling for each URL of a node, and none for what is no such URL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.txn.cluster.endpoints import ENDPOINT_CHARS_MAX, plain_endpoint, plain_endpoints


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("http://a", "http://a"),
        (" https://A:9341/ ", "https://a:9341"),
        ("HTTP://a", "http://a"),
        ("https://a/b/../c//d/", "https://a/c/d"),
        ("https://a/..", "https://a"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_every_spelling_of_an_endpoint_becomes_one(text: str, plain: str) -> None:
    assert plain_endpoint(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:1",
        "ftp://a",
        "http://",
        "http://:80",
        "http://u@a",
        "http://u:p@a",
        "http://a?",
        "http://a#",
        "http://a:99999",
        "http://a:x",
        "http://[::1",
        "http://a b",
        "http://ä",
        "http://a\x00",
        "http://" + "a" * ENDPOINT_CHARS_MAX,
    ],
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        plain_endpoint(text)


def test_a_list_is_sorted_without_doubles_and_without_nonsense() -> None:
    assert plain_endpoints(["http://b", "http://a/", "http://A", "nonsense"]) == ["http://a", "http://b"]


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_refused(rest: str) -> None:
    try:
        plain = plain_endpoint(f"http://{rest}")
    except ValueError:
        return
    assert plain_endpoint(plain) == plain
