"""Hostile input of 64 KB: an answer or a clear error, in a time that grows with its length and no faster.

No duration is asserted. What was quadratic would run into the timeout.
"""

import json
from collections.abc import Mapping

import pytest
from _pytest.mark import ParameterSet

from holdfast.lql.document.value import parse_document
from holdfast.lql.errors import LqlError
from holdfast.lql.mutation.application import apply_mutations
from holdfast.lql.mutation.text import Mode
from holdfast.lql.selector.evaluation import matches
from holdfast.lql.selector.json import selector_from_json_text
from holdfast.lql.selector.text import parse_selector

pytestmark = pytest.mark.timeout(60)

SIZE = 65_536


def filled(unit: str, end: str = "") -> str:
    return (unit * SIZE)[: SIZE - len(end)] + end


TEXTS = {
    **{
        f"only {unit!r}": filled(unit)
        for unit in ["{", "}", "{}", '"', "'", "\"'", "\\", '\\"', ",", "\n", ".", "/", "=", " "]
    },
    "balanced braces": "{" * (SIZE // 2) + "}" * (SIZE // 2),
    "deep not": filled("not.", "exists{/a}"),
    "deep and": filled("and.0.", "exists{/a}"),
    "words": "and." + filled("0.", "exists{/a}"),
    "gaps": ",".join(f"and.{index}.or.1048576.exists" for index in range(2500)),
    "clauses": ",".join(["/a=1"] * (SIZE // 5)),
    "digits": "/a=" + filled("1"),
    "small digits": "/a=0." + filled("1"),
    "exponent": "/a=1e" + filled("9"),
    "underscores": "/a=" + filled("1_", "1"),
    "zeros": "/a>" + filled("0", "1"),
    "pointer": filled("/a", "=1"),
    "wildcards": filled("/...", "=1"),
    "sugar": "/a" + filled("[]", "=1"),
    "list": "in{field=/a,any=" + filled("a|", "}"),
    "contains list": "contains{field=/a,any=" + filled("ab|", "}"),
    "body": "eq{" + filled("a=b ", "}"),
    "quotes in a body": "eq{field=/a,value=" + filled('""', "}"),
    "nested terms": filled("eq{", "}"),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_selector_text_ends(text: str) -> None:
    try:
        parse_selector(text)
    except LqlError as error:
        assert len(error.detail) < 500


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("mode", Mode)
def test_mutation_text_ends(text: str, mode: Mode) -> None:
    try:
        apply_mutations(b"{}", [text], now_ns=0, mode=mode)
    except LqlError as error:
        assert len(error.detail) < 500


@pytest.mark.parametrize(
    "text", ["[" * SIZE, '{"not":' * 9000 + "{}" + "}" * 9000, '{"or":[' + "{}," * 20_000 + "{}]}"]
)
def test_selector_json_ends(text: str) -> None:
    try:
        selector_from_json_text(text)
    except LqlError as error:
        assert error.code == "invalid_selector"


DOCUMENTS = {
    "flat": json.dumps({f"k{index}": index for index in range(5000)}),
    "list": json.dumps({"a": [1] * 30_000}),
    "deep objects": '{"a":' * 9000 + "1" + "}" * 9000,
    "deep arrays": '{"a":' + "[" * 9000 + "]" * 9000 + "}",
    "too deep": '{"a":' + "[" * 30_000 + "]" * 30_000 + "}",
    "siblings": '{"a":[' + "[]," * 20_000 + "[]]}",
    "text": json.dumps({"a": "a" * SIZE}),
    "escapes": '{"a":"' + '\\"' * (SIZE // 2) + '"}',
    "digits": '{"a":' + "1" * SIZE + "}",
    "exponent": '{"a":1e' + "9" * SIZE + "}",
    "open string": '{"a":"' + "a" * SIZE,
    "open arrays": '{"a":' + "[" * SIZE,
    "quotes": '{"a":' + '"' * SIZE,
}


def with_documents(cases: Mapping[str, object], share: int) -> list[ParameterSet]:
    """Every case on every document; of these one of `share`, with every case in it, is not `long`."""
    return [
        pytest.param(
            case, document, id=f"{name}-{kind}", marks=[pytest.mark.long] if (row + column) % share else []
        )
        for row, (name, case) in enumerate(cases.items())
        for column, (kind, document) in enumerate(DOCUMENTS.items())
    ]


SELECTORS = {
    "descend": "/" + ".../" * 15 + "x=1",
    "descend and step": "/" + ".../**/" * 7 + "x=1",
    "many walks": ",".join(f"/.../x{index}!=1" for index in range(16)),
    "many lists": ",".join(
        "not.icontains{f=/...,any=" + "|".join(f"a{index}x" for index in range(100)) + "}" for _ in range(16)
    ),
    "long pattern": "contains{f=/a,v=" + "a" * 30_000 + "b" + "a" * 30_000 + "}",
    "many patterns": ",".join(f"not.icontains{{f=/a,v={'a' * 12}{index}}}" for index in range(1500)),
    "many bounds": ",".join("not.range{f=/a,gt=1e300,lt=0}" for _ in range(2000)),
}


@pytest.mark.parametrize(("text", "document"), with_documents(SELECTORS, 5))
def test_evaluation_ends(text: str, document: str) -> None:
    try:
        value = parse_document(document)
    except LqlError:
        return

    assert matches(parse_selector(text), value, now_ns=0) in (True, False)


MUTATIONS = {
    "one": ["/b=1"],
    "into": ["/a/a/b=1"],
    "descend": ["/" + ".../" * 15 + "x=1"],
    "descend and step": ["/" + ".../**/" * 7 + "x=1"],
    "many walks": [f"/.../x{index}=1" for index in range(16)],
    "everything": ["/...=1"],
    "remove all": ["rm:/..."],
    "many": [f"/a{index}/b/c=1" for index in range(4000)],
    "blocks": ["/a{" * 16 + "/b=1" + ",/c{}{}" * 9000 + "}" * 16],
    "count": ["/a=+0.5"],
}


@pytest.mark.parametrize(("expressions", "document"), with_documents(MUTATIONS, 10))
def test_mutation_ends(expressions: list[str], document: str) -> None:
    try:
        changed = apply_mutations(document.encode(), expressions, now_ns=0)
    except LqlError as error:
        assert len(error.detail) < 500
    else:
        assert changed[:1] == b"{"
