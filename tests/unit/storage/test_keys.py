"""Keys sort as their tuples do, and stand for exactly one tuple each."""

import math
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.storage.keys import DEPTH_MAX, Element, next_key, pack, prefix_range, unpack
from holdfast.storage.tables import Subspace

INT_BOUND = 256**255 - 1

scalars: st.SearchStrategy[Element] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.integers(-INT_BOUND, INT_BOUND),
    st.floats(),
    st.binary(max_size=12),
    st.text(max_size=12),
    st.text(alphabet="\0a\x01é\uffff\U0001f600", max_size=5),
    st.lists(st.sampled_from([b"\x00", b"\xff", b"\x01", b"a"]), max_size=5).map(b"".join),
)
elements: st.SearchStrategy[Element] = st.recursive(
    scalars, lambda children: st.lists(children, max_size=4).map(tuple), max_leaves=8
)
tuples: st.SearchStrategy[tuple[Element, ...]] = st.lists(elements, max_size=5).map(tuple)


def sortable(element: Element) -> tuple[Any, ...]:
    """The documented order, spelled as something Python itself can compare."""
    if element is None:
        return (1,)
    if isinstance(element, bool):
        return (2, element)
    if isinstance(element, int):
        return (3, element)
    if isinstance(element, float):
        if math.isnan(element):
            return (4, True)  # All are one, whatever their sign and payload.
        return (4, False, element, math.copysign(1, element))
    if isinstance(element, bytes):
        return (5, element)
    if isinstance(element, str):
        return (6, element)
    return (7, tuple(sortable(child) for child in element))


def same(left: tuple[Element, ...], right: tuple[Element, ...]) -> bool:
    return sortable(left) == sortable(right)


@given(tuples)
@example((0.0, -0.0, math.nan, "\0", b"\0\xff", ("\0", ())))
def test_a_tuple_survives_the_round_trip(original: tuple[Element, ...]) -> None:
    assert same(unpack(pack(original)), original)


@given(tuples)
@example(())
@example(("a", "b\0", ""))
@example(("a", 1))
def test_texts_are_packed_to_the_same_bytes_in_the_fast_way(elements: tuple[Element, ...]) -> None:
    assert Subspace("table").key(*elements) == pack(("table", *elements))


@given(tuples, tuples)
@example(("a",), ("a\0",))
@example(("a", 1), ("a\0", 1))
@example((b"\x00",), (b"\x00\xff",))
@example(((),), ((None,),))
@example((-256,), (-255,))
@example((2**64 - 1,), (2**64,))
@example((-(2**64),), (-(2**64) + 1,))
@example((-0.0,), (0.0,))
@example((math.inf,), (math.nan,))
def test_keys_sort_as_their_tuples(left: tuple[Element, ...], right: tuple[Element, ...]) -> None:
    order_of_tuples = (sortable(left) > sortable(right)) - (sortable(left) < sortable(right))
    if any("nan" in repr(side) for side in (left, right)):
        return  # The sign of a NaN is not kept; its place is the next test's matter.

    assert (pack(left) > pack(right)) - (pack(left) < pack(right)) == order_of_tuples


@given(st.floats(allow_nan=False))
def test_nan_sorts_above_every_other_float_and_is_one_key(number: float) -> None:
    negative_nan = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0]

    assert pack((number,)) < pack((math.nan,)) == pack((negative_nan,))


@given(tuples, tuples, tuples)
def test_a_prefix_range_holds_all_longer_tuples_and_no_others(
    prefix: tuple[Element, ...], rest: tuple[Element, ...], other: tuple[Element, ...]
) -> None:
    start, end = prefix_range(prefix)

    assert (start <= pack(prefix + rest) < end) == bool(rest)
    other_is_longer = len(other) > len(prefix) and same(other[: len(prefix)], prefix)
    assert (start <= pack(other) < end) == other_is_longer


def test_a_prefix_range_excludes_strings_that_go_on_after_a_nul() -> None:
    start, end = prefix_range(("doc", "a"))

    assert not start <= pack(("doc", "a\0b", "x")) < end
    assert start <= pack(("doc", "a", "")) < end


@given(st.binary(max_size=40))
def test_random_bytes_are_the_key_of_their_tuple_or_refused(key: bytes) -> None:
    try:
        elements = unpack(key)
    except ValueError:
        return

    assert pack(elements) == key


@given(tuples, st.data())
def test_a_damaged_key_is_the_key_of_its_tuple_or_refused(
    original: tuple[Element, ...], data: st.DataObject
) -> None:
    key = bytearray(pack(original) or b"\x01")
    key[data.draw(st.integers(0, len(key) - 1))] = data.draw(st.integers(0, 255))

    try:
        elements = unpack(bytes(key))
    except ValueError:
        return
    assert pack(elements) == bytes(key)


@given(tuples, st.binary(max_size=4))
def test_nothing_fits_between_a_key_and_its_next(elements: tuple[Element, ...], rest: bytes) -> None:
    key = pack(elements)

    assert key < next_key(key)
    assert not key < key + rest < next_key(key)


@pytest.mark.parametrize("number", [INT_BOUND + 1, -INT_BOUND - 1])
def test_an_int_of_more_than_255_bytes_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="at most 255 bytes"):
        pack((number,))


def test_tuples_nest_sixteen_deep_and_no_deeper() -> None:
    nested: Element = ()
    for _ in range(DEPTH_MAX - 1):
        nested = (nested,)

    assert unpack(pack((nested,))) == (nested,)
    with pytest.raises(ValueError, match="nest deeper"):
        pack(((nested,),))
    with pytest.raises(ValueError, match="nest deeper"):
        unpack(b"P" * 5000)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        pack(("\ud800",))


def test_a_type_without_an_order_is_refused() -> None:
    wrong: Any = [1]

    with pytest.raises(TypeError, match="list"):
        pack((wrong,))


@pytest.mark.parametrize(
    "key",
    [
        b"\x00",
        b"\x01\x00",
        b"\x04",
        b"\xff",
        b"Aa",
        b"Aa\x00\xff",
        b"A\xc0\x80\x00",
        b"@a",
        b"P\x01",
        b"\x21",
        b"\x21\x00",
        b"\x22\x00\x01",
        b"\x1e\xff\xfe",
        b"\x29\x08\x01\x01\x01\x01\x01\x01\x01\x01",
        b"\x29",
        b"\x17\x00",
        b"0\x00",
        b"0\xff\xf8\x00\x00\x00\x00\x00\x01",
    ],
)
def test_a_key_that_pack_never_makes_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(key)
