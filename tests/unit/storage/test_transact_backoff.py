"""Between the attempts of a transaction: pauses that grow to a bound, and never the same for two who collide."""

import asyncio
from types import SimpleNamespace

import pytest

from holdfast.storage import transact
from holdfast.storage.errors import TransactionContended
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store, Transaction
from tests.conformance.interleaving import batch_of, before_commits

ATTEMPTS = 16


@pytest.fixture
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What transactions wished to sleep; none of them does."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    seam = SimpleNamespace(sleep=sleep, shield=asyncio.shield, ensure_future=asyncio.ensure_future)
    monkeypatch.setattr(transact, "asyncio", seam)
    return asked


async def lose_every_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(tx: Transaction) -> None:
        tx.get(b"a")
        tx.put(b"b", b"")

    before_commits(monkeypatch, store, *[batch_of(Batch(puts={b"a": b""})) for _ in range(ATTEMPTS)])
    with pytest.raises(TransactionContended):
        await store.transact(work, attempts_max=ATTEMPTS)


async def test_pauses_are_random_and_bounded_and_grow(
    pauses_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_memory(StoreOptions()) as store:
        await lose_every_time(store, monkeypatch)

    bounds_s = [
        min(transact.BACKOFF_S_MAX, transact.BACKOFF_S_BASE * 2**attempt) for attempt in range(1, ATTEMPTS)
    ]
    assert len(pauses_s) == ATTEMPTS - 1
    assert all(0 <= pause_s <= bound_s for pause_s, bound_s in zip(pauses_s, bounds_s, strict=True))
    assert bounds_s[0] < bounds_s[-1] == transact.BACKOFF_S_MAX


async def test_two_that_collide_do_not_pause_in_step(
    pauses_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_memory(StoreOptions()) as store:
        await lose_every_time(store, monkeypatch)
        await lose_every_time(store, monkeypatch)

    first, second = pauses_s[: ATTEMPTS - 1], pauses_s[ATTEMPTS - 1 :]
    assert all(one != other for one, other in zip(first, second, strict=True))


async def test_what_succeeds_at_once_does_not_pause(pauses_s: list[float]) -> None:
    def work(tx: Transaction) -> None:
        tx.put(b"a", b"")

    async with open_memory(StoreOptions()) as store:
        await store.transact(work)

    assert pauses_s == []
