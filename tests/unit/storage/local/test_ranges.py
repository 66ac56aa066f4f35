"""Ranges that a local store knows: a transaction sees what a scan would show, whatever is staged, durable or lost."""

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.fetched import RangeRead
from holdfast.storage.known_ranges import RangeCache
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.pending import PendingBatches
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Record, Transaction

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


Read = tuple[tuple[bytes, bytes | None], int, bool]
Write = tuple[bytes, bool]
Step = tuple[list[Read], list[Write]]


def _run(tx: Transaction, asked: list[Read], changes: list[Write], value: bytes) -> list[list[bytes]]:
    """One transaction: what its reads show, before its writes."""
    seen: list[list[bytes]] = []
    for (start, end), limit, reverse in asked:
        records = tx.range(start, end, limit=limit, reverse=reverse, expected=True)
        seen.append([record.key for record in records])
    for key, is_put in changes:
        if is_put:
            tx.put(key, value)
        else:
            tx.delete(key)
    return seen


async def _walk(plan: list[Step]) -> None:
    model: dict[bytes, bytes] = {}
    async with open_memory(StoreOptions()) as store:
        for number, (asked, changes) in enumerate(plan):
            value = b"%d" % number

            seen = await store.transact(partial(_run, asked=asked, changes=changes, value=value))

            assert seen == [
                _shown(model, start, end, limit, reverse=reverse) for (start, end), limit, reverse in asked
            ]
            for key, is_put in changes:
                if is_put:
                    model[key] = value
                else:
                    model.pop(key, None)


@given(plan=steps)
def test_a_known_range_is_what_a_scan_would_show(plan: list[Step]) -> None:
    asyncio.run(_walk(plan))


def test_a_store_that_does_not_tell_of_what_it_stages_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RangeCache, "staged", _does_nothing)
    range_read: Read = ((b"a", b"b"), 4, False)

    with pytest.raises(AssertionError):
        asyncio.run(_walk([([range_read], [(b"a1", True)]), ([range_read], [])]))


async def test_a_range_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0
    scanned = PendingBatches._scanned

    def counted(pending: PendingBatches, read: RangeRead) -> list[Record]:
        nonlocal scans
        scans += 1
        return scanned(pending, read)

    monkeypatch.setattr(PendingBatches, "_scanned", counted)
    async with open_memory(StoreOptions()) as store:
        await store.commit(Batch(puts={b"a1": b""}))

        for name in (b"a2", b"a3"):
            await store.transact(
                partial(_run, asked=[((b"a", b"b"), 10, False)], changes=[(name, True)], value=b"")
            )

    assert scans == 1


def test_nothing_is_known_of_a_range_after_what_was_staged_is_lost() -> None:
    pending = PendingBatches(0, MemoryEngine())
    pending._ranges.fetched(b"a", b"b", [], 0)

    pending.lose(0, StoreUnavailable("the disk is gone"))

    assert len(pending._ranges) == 0


def _does_nothing(*_: object) -> None:
    pass
