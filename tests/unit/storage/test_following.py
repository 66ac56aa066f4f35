"""A follower of a store: it goes on where it was interrupted, and says when something may have been missed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from holdfast.storage.errors import Compacted, StorageError, StoreUnavailable, WatcherTooSlow
from holdfast.storage.following import Follower
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryBlobs
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Event

BOUNDS = (b"a", b"b")


class SharedStore(LocalStore):
    """Says that other processes may write to it, unless told otherwise, and can cut off its watches."""

    def __init__(self, *, is_shared: bool = True, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        super().__init__(url="mem://", engine=MemoryEngine(), options=options)
        self._is_shared = is_shared
        self.attach(MemoryBlobs(self, self.clock))

    @property
    def is_shared(self) -> bool:
        return self._is_shared

    def interrupt(self, error: StorageError) -> None:
        self._hub.interrupt(error)

    async def put(self, key: bytes) -> int:
        return await self.commit(Batch(puts={key: b"value"}))


@dataclass
class Picture:
    """What a follower keeps in memory of a store."""

    store: SharedStore
    told: list[bytes] = field(default_factory=list[bytes])
    resyncs: int = 0
    is_faulty: bool = False
    failures: list[StorageError] = field(default_factory=list[StorageError])
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_events(self, events: list[Event]) -> None:
        if self.is_faulty:
            self.is_faulty = False
            raise ValueError("a fault in what is told")
        self.told += [event.key for event in events]
        self.changed.set()

    async def resync(self) -> None:
        if self.failures:
            raise self.failures.pop()
        self.resyncs += 1
        self.changed.set()

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        follower = Follower(
            self.store, BOUNDS, on_events=self.on_events, resync=self.resync, name="test.follower"
        )
        async with follower:
            yield

    async def until(self, told: list[bytes], resyncs: int) -> None:
        async with asyncio.timeout(20):
            while (self.told, self.resyncs) != (told, resyncs):
                self.changed.clear()
                await self.changed.wait()


async def test_events_of_the_range_are_told_after_one_look_at_everything() -> None:
    picture = Picture(SharedStore())
    await picture.store.put(b"a0")
    async with picture.followed():
        assert (picture.told, picture.resyncs) == ([], 1)
        await picture.store.put(b"a1")
        await picture.store.put(b"b1")
        await picture.store.put(b"a2")

        await picture.until([b"a1", b"a2"], 1)


@pytest.mark.parametrize("error", [WatcherTooSlow(1), StoreUnavailable("away")])
async def test_an_interrupted_follower_goes_on_after_the_last_revision_it_saw(error: StorageError) -> None:
    """Nothing is told twice, nothing is missed, nothing has to be polled."""
    picture = Picture(SharedStore())
    async with picture.followed():
        await picture.store.put(b"a1")
        await picture.until([b"a1"], 1)

        picture.store.interrupt(error)
        await picture.store.put(b"a2")

        await picture.until([b"a1", b"a2"], 1)


async def test_a_follower_that_missed_events_looks_at_everything() -> None:
    picture = Picture(SharedStore())
    async with picture.followed():
        await picture.store.put(b"a1")
        await picture.until([b"a1"], 1)

        picture.store.interrupt(Compacted(1, 5))
        await picture.until([b"a1"], 2)

        await picture.store.put(b"a2")
        await picture.until([b"a1", b"a2"], 2)


async def test_a_look_that_fails_is_repeated() -> None:
    picture = Picture(SharedStore())
    async with picture.followed():
        picture.failures = [StoreUnavailable("away"), StoreUnavailable("away")]
        picture.store.interrupt(Compacted(1, 5))

        await picture.until([], 2)

    assert picture.failures == []


async def test_a_first_look_that_fails_is_told_and_leaves_no_watch() -> None:
    picture = Picture(SharedStore(), failures=[StoreUnavailable("away")])

    with pytest.raises(StoreUnavailable):
        async with picture.followed():
            raise AssertionError("unreachable")

    assert picture.store.figures()["watches"] == 0


async def test_the_own_store_of_a_process_tells_of_its_recovery_alone() -> None:
    picture = Picture(SharedStore(is_shared=False))
    async with picture.followed():
        await picture.store.put(b"a1")
        assert not picture.store._hub.is_watched, "no commit makes events for it"

        picture.store.interrupt(StoreUnavailable("the store recovered"))
        await picture.until([], 2)


async def test_a_fault_in_what_is_told_does_not_end_the_follower() -> None:
    picture = Picture(SharedStore(), is_faulty=True)
    async with picture.followed():
        await picture.store.put(b"a1")
        await picture.until([], 2)

        await picture.store.put(b"a2")
        await picture.until([b"a2"], 2)
