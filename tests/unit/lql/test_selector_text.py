"""Selector text: what it means, and what is refused with a position and a hint."""

import pytest

from holdfast.lql.errors import InvalidSelector
from holdfast.lql.selector.json import selector_to_json
from holdfast.lql.selector.text import parse_selector


def eq(field: str, value: str) -> dict[str, object]:
    return {"eq": {"field": field, "value": value}}


@pytest.mark.parametrize(
    ("text", "ast"),
    [
        ("/a=1,/b=2", {"and": [eq("/a", "1"), eq("/b", "2")]}),
        (
            "/a>=1,/a<=5",
            {"and": [{"range": {"field": "/a", "gte": 1}}, {"range": {"field": "/a", "lte": 5}}]},
        ),
        ("or.eq{field=/r,value=us},or.eq{field=/r,value=eu}", {"or": [eq("/r", "us"), eq("/r", "eu")]}),
        (
            "/s=open,or.eq{f=/r,v=us},or.eq{f=/r,v=eu}",
            {"and": [eq("/s", "open"), {"or": [eq("/r", "us"), eq("/r", "eu")]}]},
        ),
        (
            "not.and.0.exists{/a},not.and.1.exists{/b}",
            {"and": [{"not": {"exists": "/a"}}, {"not": {"exists": "/b"}}]},
        ),
        ("exists{/metadata/etag}", {"exists": "/metadata/etag"}),
        ("in{field=/env,any=prod|stage|dev}", {"in": {"field": "/env", "any": ["prod", "stage", "dev"]}}),
        ('in{field=/env,any="a b | | 1.0"}', {"in": {"field": "/env", "any": ["a b", "1"]}}),
        ("contains{field=/msg,value=timeout}", {"contains": {"field": "/msg", "value": "timeout"}}),
        (
            "contains{f=/msg,a=x|y,ic=t}",
            {"contains": {"field": "/msg", "any": ["x", "y"], "ignoreCase": True}},
        ),
        ("icontains{field=/msg}", {"icontains": {"field": "/msg"}}),
        ("iprefix{f=/msg,v=ab}", {"iprefix": {"field": "/msg", "value": "ab"}}),
        ("/t>=2026-03-05T10:28:21Z", {"range": {"field": "/t", "gte": "2026-03-05T10:28:21Z"}}),
        (
            '/t<"2026-03-05T11:29:41.265+01:00"',
            {"range": {"field": "/t", "lt": "2026-03-05T11:29:41.265+01:00"}},
        ),
        (
            "date{f=/ts,a=2025-01-01,b=2025-02-01}",
            {"date": {"field": "/ts", "after": "2025-01-01", "before": "2025-02-01"}},
        ),
        ("date{f=/ts,since=Yesterday}", {"date": {"field": "/ts", "since": "Yesterday"}}),
        ("eq{field=/a,value='two words'}", eq("/a", "two words")),
        ("/a='x,y'", eq("/a", "x,y")),
        ("/a===b", eq("/a", "=b")),
        ("/a=b=c", eq("/a", "b=c")),
        (r'/a="q\"q"', eq("/a", r"q\"q")),
        ("/a=1e400", eq("/a", "1e400")),
        ("/a=-0", eq("/a", "-0")),
        ("/a=1_000.5", eq("/a", "1000.5")),
        ("{}", {}),
        (" . ", {}),
        ("exists", {}),
        ("not.exists", {"not": {}}),
        ("and.7.exists{/a}", {"exists": "/a"}),
        ("not.or.1.exists{/a}", {"not": {"or": [{}, {"exists": "/a"}]}}),
        ("/items[]/sku=x", eq("/items[]/sku", "x")),
        ("/n>=9007199254740993", {"range": {"field": "/n", "gte": 9007199254740993}}),
    ],
)
def test_text_means(text: str, ast: dict[str, object]) -> None:
    assert selector_to_json(parse_selector(text)) == ast


@pytest.mark.parametrize(
    "text",
    [
        "foo", "/a", "(", "/a!x", "eq{field=/a,value=x},foo", "/n=1,000", "and.foo.eq{field=/a,value=x}",
        "range{gte=1}", "range{field=/a}", "in{field=/a}", "in{any=x}", "in{field=/a,any=|}", "/a=it's",
        "eq{field=/a,value=x,value=y}", "eq{field=/a,colour=x}", "exists{field=/x}", "exists{/a,/b}", "exists{}",
        "and..eq{field=/a,value=x}", "contains{f=/a,v=x,a=y}", "prefix{f=/a,a=x}", "contains{f=/a,ic=maybe}",
        "date{f=/a}", "date{f=/a,after=soon}", "date{f=/a,after=2025-01-01,gt=2025-01-01}",
        "date{f=/a,since=today,gte=2025-01-01}", "range{f=/a,gt=1,lt=2025-01-01}", "/a>yesterday",
        "eq{field=a,value=x}", "/a=inf", '/a="NaN"', "and.1048577.exists{/a}", "and.and.exists{/a}",
        "and.not.or.exists{/a}", "/a>1e400", "eq{f=/a}{f=/b}", "and.٣.exists{/a}", "not.or.1048576.exists{/a}",
    ],
)  # fmt: skip
def test_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse_selector(text)

    assert (caught.value.code, caught.value.status) == ("invalid_selector", 400)
    assert caught.value.hint or caught.value.position is not None


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('/a=1,/b="x', 8),
        ("/a=1,  nonsense", 7),
        ("/a=1,/n>abc", 8),
        ("eq{field=/a,valeu=x}", 12),
        ("and.0.foo{field=/a}", 6),
        ("/a=1}", 4),
        ("eq{field=/a", 2),
        ("/a=1\nexists{b}", 12),
    ],
)
def test_an_error_says_where(text: str, position: int) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse_selector(text)

    assert caught.value.position == position
    assert f"at character {position + 1}" in caught.value.detail
