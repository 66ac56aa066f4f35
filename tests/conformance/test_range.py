"""Ranges: in key order, bounded, from either end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.errors import InvalidBatch
from holdfast.storage.local.ordered import CHUNK_KEYS_MAX, OrderedKeys
from holdfast.storage.port import RANGE_LIMIT_MAX, Batch, Store

KEYS = [b"", b"\x00", b"a", b"a\x00", b"aa", b"b", b"b\xff", b"c", b"\xff", b"\xff\xff"]


@pytest.fixture
async def filled(store: Store) -> Store:
    await store.commit(Batch(puts={key: b"v" + key for key in KEYS}))
    return store


@pytest.mark.parametrize(
    ("start", "end"),
    [(b"", None), (b"a", b"b"), (b"a", b"a"), (b"b", b"a"), (b"a\x00", b"c"), (b"\xff", None), (b"x", b"y")],
)
async def test_a_range_gives_its_keys_in_order_both_ways(
    filled: Store, start: bytes, end: bytes | None
) -> None:
    wanted = [key for key in KEYS if key >= start and (end is None or key < end)]

    rising = await filled.range(start, end, limit=100)
    falling = await filled.range(start, end, limit=100, reverse=True)

    assert [record.key for record in rising] == wanted
    assert [record.key for record in falling] == wanted[::-1]
    assert all(record.value == b"v" + record.key for record in rising)


async def test_a_limit_takes_the_first_ones(filled: Store) -> None:
    assert [r.key for r in await filled.range(b"a", None, limit=2)] == [b"a", b"a\x00"]
    assert [r.key for r in await filled.range(b"", b"c", limit=2, reverse=True)] == [b"b\xff", b"b"]


async def test_keys_only_leaves_the_values_out(filled: Store) -> None:
    records = await filled.range(b"a", b"c", limit=10, keys_only=True)

    assert {record.value for record in records} == {b""}
    assert all(record.mod_revision and record.version == 1 for record in records)


@pytest.mark.parametrize("limit", [0, -1, RANGE_LIMIT_MAX + 1])
async def test_a_limit_out_of_bounds_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(InvalidBatch):
        await store.range(b"", None, limit=limit)


@given(
    steps=st.lists(st.tuples(st.booleans(), st.binary(max_size=2)), max_size=60),
    start=st.binary(max_size=2),
    end=st.none() | st.binary(max_size=2),
)
def test_ordered_keys_behave_like_a_sorted_set(
    steps: list[tuple[bool, bytes]], start: bytes, end: bytes | None
) -> None:
    model: set[bytes] = set()
    ordered = OrderedKeys()
    for is_add, key in steps:
        if is_add and key not in model:
            model.add(key)
            ordered.add(key)
        elif not is_add and key in model:
            model.remove(key)
            ordered.remove(key)

    wanted = sorted(key for key in model if key >= start and (end is None or key < end))
    assert list(ordered.within(start, end)) == wanted
    assert list(ordered.within_reversed(start, end)) == wanted[::-1]


def test_ordered_keys_stay_sorted_over_many_chunks() -> None:
    ordered = OrderedKeys()
    keys = [b"%08d" % (n * 7919 % 10_007) for n in range(10_007)]
    for key in keys:
        ordered.add(key)
    for key in keys[:5_000]:
        ordered.remove(key)

    wanted = sorted(keys[5_000:])
    assert len(wanted) > CHUNK_KEYS_MAX
    assert list(ordered.within(b"", None)) == wanted
    assert list(ordered.within_reversed(b"00002", b"00009")) == [
        k for k in wanted[::-1] if b"00002" <= k < b"00009"
    ]
