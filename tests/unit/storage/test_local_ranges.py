"""Ranges that a local store knows: a transaction sees what a scan would show, whatever is staged, durable or lost."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.known_ranges import RangeCache
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.pending import PendingBatches
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Transaction

KEYS = [b"a1", b"a2", b"a3", b"b1", b"b2", b"c1"]
RANGES = [(b"a", b"b"), (b"a2", b"b2"), (b"b", b"c"), (b"c", None)]

writes = st.tuples(st.sampled_from(KEYS), st.booleans())
reads = st.tuples(st.sampled_from(RANGES), st.integers(1, 4), st.booleans())
steps = st.lists(st.tuples(st.lists(reads, max_size=3), st.lists(writes, max_size=3)), max_size=12)


def _shown(
    model: dict[bytes, bytes], start: bytes, end: bytes | None, limit: int, *, reverse: bool
) -> list[bytes]:
    keys = [key for key in model if start <= key and (end is None or key < end)]
    return sorted(keys, reverse=reverse)[:limit]


async def _walk(
    plan: list[tuple[list[tuple[tuple[bytes, bytes | None], int, bool]], list[tuple[bytes, bool]]]],
) -> None:
    model: dict[bytes, bytes] = {}
    async with open_memory(StoreOptions()) as store:
        for number, (asked, changes) in enumerate(plan):

            def run(tx: Transaction) -> list[list[bytes]]:
                seen = [
                    [
                        record.key
                        for record in tx.range(start, end, limit=limit, reverse=reverse, expected=True)
                    ]
                    for (start, end), limit, reverse in asked  # noqa: B023 (it runs at once)
                ]
                for key, is_put in changes:  # noqa: B023
                    if is_put:
                        tx.put(key, b"%d" % number)  # noqa: B023
                    else:
                        tx.delete(key)
                return seen

            seen = await store.transact(run)

            assert seen == [
                _shown(model, start, end, limit, reverse=reverse) for (start, end), limit, reverse in asked
            ]
            for key, is_put in changes:
                if is_put:
                    model[key] = b"%d" % number
                else:
                    model.pop(key, None)


@given(plan=steps)
def test_a_known_range_is_what_a_scan_would_show(
    plan: list[tuple[list[tuple[tuple[bytes, bytes | None], int, bool]], list[tuple[bytes, bool]]]],
) -> None:
    asyncio.run(_walk(plan))


def test_a_store_that_does_not_tell_of_what_it_stages_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RangeCache, "staged", lambda *_: None)
    range_read = ((b"a", b"b"), 4, False)

    with pytest.raises(AssertionError):
        asyncio.run(_walk([([range_read], [(b"a1", True)]), ([range_read], [])]))


async def test_a_range_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0
    scanned: Callable[..., object] = PendingBatches._scanned

    def counted(*arguments: object) -> object:
        nonlocal scans
        scans += 1
        return scanned(*arguments)

    monkeypatch.setattr(PendingBatches, "_scanned", counted)
    async with open_memory(StoreOptions()) as store:
        await store.commit(Batch(puts={b"a1": b""}))

        for name in (b"a2", b"a3"):
            await store.transact(lambda tx, name=name: _join(tx, name))  # type: ignore[misc]  # Bound at once.

    assert scans == 1


def _join(tx: Transaction, name: bytes) -> None:
    tx.range(b"a", b"b", limit=10, expected=True)
    tx.put(name, b"")


def test_nothing_is_known_of_a_range_after_what_was_staged_is_lost() -> None:
    pending = PendingBatches(0, MemoryEngine())
    pending._ranges.fetched(b"a", b"b", [], 0)

    pending.lose(0, StoreUnavailable("the disk is gone"))

    assert len(pending._ranges) == 0
