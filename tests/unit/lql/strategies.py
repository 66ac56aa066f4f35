"""Random documents, selectors and pointers from a small world, so that they meet."""

from hypothesis import strategies as st

from holdfast.lql.document.value import Number, Value
from holdfast.lql.pointer import Pointer, parse_pointer
from holdfast.lql.selector.tree import (
    BOUND_NAMES,
    MATCH_ALL,
    Date,
    Exists,
    In,
    Not,
    Range,
    Selector,
    Term,
    Text,
    TextOperator,
    alternatives,
    conjunction,
)

NAMES = st.sampled_from(["a", "b", "c", "0", "1", "", "x y", "ü", "a/b", "m~n", 'q"q', "*"])
TEXTS = st.sampled_from(
    [
        "",
        "x",
        "xy",
        "X",
        "42",
        "4.5",
        "true",
        "2025-03-01",
        "2025-03-01T10:00:00Z",
        "2025-03-01T12:00:00+02:00",
        "ß ü",
    ]
) | st.text(max_size=4)
NUMBERS = st.sampled_from(["0", "1", "42", "-7", "4.5", "1e3", "9007199254740993", "-0.0", "1E-2"]).map(
    Number
)
SCALARS: st.SearchStrategy[Value] = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS: st.SearchStrategy[dict[str, Value]] = st.dictionaries(NAMES, VALUES, max_size=5)

SEGMENTS = st.sampled_from(
    ["a", "b", "c", "0", "1", "00", "+1", "-1", "x y", "ü", "a~1b", "m~0n", "*", "[]", "**", "..."]
)


def pointers(segments: st.SearchStrategy[str] = SEGMENTS) -> st.SearchStrategy[Pointer]:
    return st.lists(segments, min_size=1, max_size=3).map(lambda parts: parse_pointer("/" + "/".join(parts)))


BOUNDS = st.integers(-10, 50) | st.sampled_from([4.5, 0.01, 2**53 + 1, 1e300])
MOMENTS = st.sampled_from(
    ["2025-03-01", "2025-03-01T10:00:00Z", "2025-03-01T10:00:00.5", "2025-02-28T23:00:00-02:00"]
)


def _bounds(
    values: st.SearchStrategy[int | float | str],
) -> st.SearchStrategy[tuple[tuple[str, int | float | str], ...]]:
    chosen = st.lists(st.sampled_from(BOUND_NAMES), min_size=1, max_size=2, unique=True)
    return chosen.flatmap(
        lambda names: st.tuples(*(values for _ in names)).map(
            lambda found: tuple(zip(sorted(names, key=BOUND_NAMES.index), found, strict=True))
        )
    )


@st.composite
def text_terms(draw: st.DrawFn) -> Text:
    operator = draw(st.sampled_from(list(TextOperator)))
    field = draw(pointers())
    if operator in (TextOperator.CONTAINS, TextOperator.ICONTAINS):
        kind = draw(st.sampled_from(["one", "many", "none"]))
        if kind == "many":
            return Text(
                operator,
                field,
                tuple(draw(st.lists(TEXTS, min_size=1, max_size=3))),
                draw(st.booleans()),
                True,
            )
        if kind == "none":
            return Text(operator, field, None, draw(st.booleans()))
    has_case = operator not in (TextOperator.EQ, TextOperator.PREFIX)
    return Text(operator, field, (draw(TEXTS),), has_case and draw(st.booleans()))


TERMS: st.SearchStrategy[Term] = (
    text_terms()
    | st.builds(In, pointers(), st.lists(TEXTS, max_size=3).map(tuple))
    | st.builds(Exists, pointers())
    | st.builds(Range, pointers(), _bounds(BOUNDS) | _bounds(MOMENTS))
    | st.builds(Date, pointers(), st.tuples(st.tuples(st.sampled_from(["value", "since", "after"]), MOMENTS)))
)
SELECTORS: st.SearchStrategy[Selector] = st.recursive(
    TERMS | st.just(MATCH_ALL),
    lambda inner: (
        st.lists(inner, max_size=3).map(conjunction)
        | st.lists(inner, max_size=3).map(alternatives)
        | inner.map(Not)
    ),
    max_leaves=6,
)
