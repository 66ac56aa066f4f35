"""Other writers that come between the steps of a transaction: its function itself does not wait."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.storage.port import Batch, Store

Commit = Callable[[Batch], Awaitable[int]]
Step = Callable[[Commit], Awaitable[Any]]


def before_commits(monkeypatch: pytest.MonkeyPatch, store: Store, *steps: Step) -> None:
    """Before the first commits of this store these steps happen, one each; they commit by what they are given."""
    commit, left = store.commit, list(steps)

    async def late(batch: Batch) -> int:
        if left:
            await left.pop(0)(commit)
        return await commit(batch)

    monkeypatch.setattr(store, "commit", late)


def after_first_fetch(monkeypatch: pytest.MonkeyPatch, store: Store, step: Step) -> None:
    """On a remote store: between the two round trips that a transaction reads by. A local one has no such moment."""
    if not store.is_shared:
        return
    target: Any = store
    fetch, left = target._fetch, [step]

    async def slow(missing: object, fetched: object) -> None:
        await fetch(missing, fetched)
        if left:
            await left.pop()(store.commit)

    monkeypatch.setattr(store, "_fetch", slow)


def batch_of(batch: Batch) -> Step:
    return lambda commit: commit(batch)
