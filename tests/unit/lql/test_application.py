"""Mutations applied: against a dict model, and byte by byte where nothing may change."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.lql.document.value import Value, encode_document, parse_document
from holdfast.lql.errors import InvalidDocument, InvalidMutations, MutationFailed
from holdfast.lql.mutation.application import apply_mutations
from holdfast.lql.mutation.text import Mode
from tests.infra.examples import examples
from tests.unit.lql.strategies import DOCUMENTS

NOW_NS = 1_741_000_000_000_000_001


def apply(document: str, *expressions: str) -> str:
    return apply_mutations(document.encode(), expressions, now_ns=NOW_NS).decode()


PATHS = st.lists(
    st.sampled_from(["a", "b", "c", "0", "x y", "ü", "a/b", "m~n", ""]), min_size=1, max_size=3
).filter(lambda path: path != [""])
CHANGES = st.sampled_from(["=x", "=7", "=null", "=", "=+2", "=-2", "++", "--", "rm"])


class Refused(Exception):
    """The model cannot apply a change."""


def model_apply(document: dict[str, Any], path: list[str], change: str) -> None:
    parent: dict[str, Any] = document
    for name in path[:-1]:
        child = parent.get(name)
        if not isinstance(child, dict):
            if change == "rm":
                return
            child = parent[name] = {}
        parent = child
    key = path[-1]
    delta = {"=+2": 2, "=-2": -2, "++": 1, "--": -1}.get(change)
    if change == "rm":
        parent.pop(key, None)
    elif delta is None:
        parent[key] = {"=x": "x", "=7": 7, "=null": None, "=": ""}[change]
    else:
        number = parent.get(key, 0)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise Refused
        parent[key] = number + delta


def expression(path: list[str], change: str) -> str:
    pointer = "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)
    return f"rm:{pointer}" if change == "rm" else f"{pointer}{change}"


@settings(max_examples=examples(400), deadline=None)
@given(DOCUMENTS, st.lists(st.tuples(PATHS, CHANGES), min_size=1, max_size=5), st.booleans())
def test_mutations_do_what_a_dict_would_do(
    document: dict[str, Value], changes: list[tuple[list[str], str]], spaced: bool
) -> None:
    data = encode_document(document, indent=2 if spaced else 0)
    model = json.loads(data)
    try:
        for path, change in changes:
            model_apply(model, path, change)
    except Refused:
        with pytest.raises(MutationFailed):
            apply_mutations(data, [expression(*change) for change in changes], now_ns=0)
        return

    changed = apply_mutations(data, [expression(*change) for change in changes], now_ns=0)

    assert json.loads(changed) == model


@settings(deadline=None)
@given(DOCUMENTS)
def test_a_mutation_that_finds_nothing_leaves_every_byte(document: dict[str, Value]) -> None:
    data = encode_document(document)

    assert apply_mutations(data, ["rm:/not there", "rm:/a/not/there"], now_ns=0) == data


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=2000 // 40))
def test_members_are_found_in_large_documents_too(rest: dict[str, object]) -> None:
    padding = {"pad": "x" * 70_000, "nested": [[[[[[{"n": 1}]]]]]], "n": 1}
    data = json.dumps({**rest, **padding}, separators=(",", ":")).encode()

    changed = apply_mutations(data, ["/n++", "/nested/n=2"], now_ns=0)

    assert json.loads(changed) == {**rest, **padding, "n": 2, "nested": {"n": 2}}


@pytest.mark.parametrize(
    ("document", "expressions", "changed"),
    [
        (
            '{"n":1.50,"e":1E3,"u":"\\u00e9","count":9}',
            ["/count++"],
            '{"n":1.50,"e":1E3,"u":"\\u00e9","count":10}',
        ),
        ('{"b":1,"a":2}', ["/b=3", "/c=4"], '{"b":3,"a":2,"c":4}'),
        ('{"\\u0061":1}', ["/a=2"], '{"\\u0061":2}'),
        ('{"a":1,"x":0,"a":2,"x":1}', ["/a++"], '{"x":0,"a":3,"x":1}'),
        ('{"a":1,"a":2}', ["rm:/a"], "{}"),
        ('{"big":12345678901234567890123}', ["/big++"], '{"big":12345678901234567890124}'),
        ('{"f":0.1}', ["/f=+0.2"], '{"f":0.30000000000000004}'),
        ('{"f":1.5}', ["/f=+0.5"], '{"f":2}'),
        ('{"f":1e3}', ["/f++"], '{"f":1001}'),
        ("", ["/a=1"], '{"a":1}'),
        (" null ", ["/a=1"], '{"a":1}'),
        ('{"a":1}', ["rm:/a", "/a=2"], '{"a":2}'),
        ("{}", ["/a=99999999999999999999"], '{"a":100000000000000000000}'),
        ("{}", ["/a=9223372036854775807"], '{"a":9223372036854775807}'),
        ("{}", ['/a=say "hi"\\'], '{"a":"say \\\\"hi\\\\"\\\\\\\\"}'.replace("\\\\", "\\")),
        ("{}", ["time:/t=NOW"], '{"t":"2025-03-03T11:06:40.000000001Z"}'),
        ("{}", ["time:/t='0000-01-01T00:00:00.50Z'"], '{"t":"0000-01-01T00:00:00.5Z"}'),
        ("{}", ["time:/m{/at=NOW}"], '{"m":{"at":"NOW"}}'),
        ('{"a":[{"n":1},{"n":2,"m":0},{"x":0}]}', ["/a[]/n++"], '{"a":[{"n":2},{"n":3,"m":0},{"x":0}]}'),
        ('{"a":{"x":1,"y":[1]},"b":1}', ["/a/*=0"], '{"a":{"x":0,"y":0},"b":1}'),
        ('{"a":[1,2]}', ["rm:/a[]"], '{"a":[null,null]}'),
        ('{"a":{"x":1},"b":[{"x":2}],"x":3}', ["rm:/.../x"], '{"a":{},"b":[{}]}'),
        ('{"a":{"x":1},"b":[1]}', ["/a/**=5", "/b/**=5", "/c/*=5"], '{"a":{"x":5},"b":[5]}'),
        ('{"a":[1]}', ["/a/*=5", "/a[]/x=5"], '{"a":[1]}'),
        ('{"a":1,"b":{"c":2}}', ["/...=0"], '{"a":0,"b":0}'),
        ('{"a":[1]}', ["/a[]=2", "/a/0=3"], '{"a":{"0":3}}'),
    ],
)
def test_a_document_changes(document: str, expressions: list[str], changed: str) -> None:
    assert apply(document, *expressions) == changed


@pytest.mark.parametrize(
    "expressions",
    [
        ["/s++"],
        ["/s=x", "/s++"],
        ["/l++"],
        ["/o--"],
        ["/z++"],
        ["/t=+1"],
        ["/f=+1e308"],
        ["/.../q++"],
        ["/i=+0.5"],
    ],
)
def test_what_cannot_be_counted_fails(expressions: list[str]) -> None:
    document = '{"s":"10","l":[],"o":{},"z":null,"t":true,"f":1.7e308,"q":"x","i":1%s}' % ("0" * 400)

    with pytest.raises(MutationFailed) as caught:
        apply(document, *expressions)

    assert caught.value.code == "invalid_body"


@pytest.mark.parametrize(
    "document",
    ["[]", "1", '"x"', "nul", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,}', '{"a" 1}', '{"a":1}x', '{"b":[}', '{"b":[1}',
     '{"b":"x', '{"a":1]', "{1:2}", '{"b":{"c":}', '{"\\\\u":1,"a":1}', "true", "nullx"],
)  # fmt: skip
def test_a_document_that_is_no_object_is_refused_or_kept(document: str) -> None:
    try:
        changed = apply(document, "/a/b=1")
    except InvalidDocument as error:
        assert error.code == "invalid_body"
    else:
        assert changed.startswith("{")


@pytest.mark.parametrize(
    ("expressions", "mode"),
    [
        ([], Mode.EXPRESSIONS), (["", " "], Mode.EXPRESSIONS), (["/a"], Mode.EXPRESSIONS), (["a=1"], Mode.EXPRESSIONS),
        (["meta{/owner=x}"], Mode.EXPRESSIONS), (["/{/a=1}"], Mode.EXPRESSIONS), (["/a{}"], Mode.EXPRESSIONS),
        (["/a{/=1}"], Mode.EXPRESSIONS), (["rm:time:/a"], Mode.EXPRESSIONS), (["RM:/a"], Mode.EXPRESSIONS),
        (["/a=+inf"], Mode.EXPRESSIONS), (["/a=+1e-400"], Mode.EXPRESSIONS), (["time:/a=2025-01-01T00:00:00"], Mode.EXPRESSIONS),
        (["time:/a=9999-12-31T23:59:59-01:00"], Mode.EXPRESSIONS), (["time:/a=2025-02-30T00:00:00Z"], Mode.EXPRESSIONS),
        (["file:/a=x"], Mode.EXPRESSIONS), (["file:/a++"], Mode.EXPRESSIONS), (["/a=it's"], Mode.SCRIPT),
        (["/a={"], Mode.SCRIPT), (["/a{" * 17 + "/b=1" + "}" * 17], Mode.EXPRESSIONS), (["/a" * 257 + "=1"], Mode.EXPRESSIONS),
        (["/*=1"] * 17, Mode.EXPRESSIONS),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(expressions: list[str], mode: Mode) -> None:
    with pytest.raises(InvalidMutations) as caught:
        apply_mutations(b"{}", expressions, now_ns=0, mode=mode)

    assert (caught.value.code, caught.value.status) == ("invalid_mutations", 400)


def test_an_error_names_the_expression_and_the_position() -> None:
    with pytest.raises(InvalidMutations, match=r"mutation 2: .* at character 4"):
        apply("{}", "/a=1", "/m{b=1}")


@pytest.mark.parametrize(
    ("expression", "content", "value"),
    [
        ("file:/a=name", b"text \xc3\xa9", "text é"),
        ("file:/a='name'", b"\x00", "AA=="),
        ("file:/a=name", b"\xff", "/w=="),
        ("textfile:/a=name", b"a\x00b", "a\x00b"),
        ("base64file:/a=name", b"hello", "aGVsbG8="),
        ("/o{file:/a=name}", b"42", "42"),
    ],
)
def test_files_become_texts_where_there_is_a_reader(expression: str, content: bytes, value: str) -> None:
    read: list[str] = []

    def read_file(name: str) -> bytes:
        read.append(name)
        return content

    changed = apply_mutations(b"{}", [expression], now_ns=0, read_file=read_file)

    found = json.loads(changed)
    assert (found.get("o", found)["a"], read) == (value, ["name"])


def test_a_text_file_must_be_text() -> None:
    with pytest.raises(InvalidMutations, match="base64file"):
        apply_mutations(b"{}", ["textfile:/a=x"], now_ns=0, read_file=lambda name: b"\xff")


def test_halves_of_characters_survive() -> None:
    changed = apply_mutations(b"{}", ["/a=\ud800", "/\udfff=1"], now_ns=0)

    assert parse_document(changed) == {"a": "\ud800", "\udfff": "1"}
