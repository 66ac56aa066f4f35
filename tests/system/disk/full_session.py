"""Fills a small file system again and again, by its own writes and by a stranger's file, and goes on each time."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import OutcomeUnknown, StorageError, StoreFull
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store

RESERVE = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=12 << 20)
NO_RESERVE = replace(RESERVE, free_bytes_min=0)
CHUNK = b"x" * 200_000


class Session:
    """Every acknowledged write, to be found again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._filler = folder / "filler"
        self.acknowledged: dict[bytes, bytes] = {}

    async def put(self, store: Store, number: int) -> None:
        key, value = b"k%d" % (number % 20), b"%d " % number + CHUNK
        await store.commit(Batch(puts={key: value}))
        self.acknowledged[key] = value

    async def check(self, store: Store) -> None:
        for key, value in self.acknowledged.items():
            record = await store.get(key)
            assert record is not None
            assert record.value == value or key in self.in_doubt

    in_doubt: frozenset[bytes] = frozenset()

    def fill(self) -> None:
        """Take every byte that is left."""
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                return

    def free(self) -> None:
        self._filler.unlink()

    def has_spare_segment(self) -> bool:
        return any((self._folder / "store" / "journal").glob("*.spare"))

    @asynccontextmanager
    async def opened(self, options: StoreOptions) -> AsyncIterator[Store]:
        async with open_disk(self._folder / "store", options) as store:
            yield store


async def own_writes(session: Session) -> None:
    async with session.opened(RESERVE) as store:
        session.fill()
        for number in range(1000):
            try:
                await session.put(store, number)
            except StoreFull as error:
                assert "less than 12 MiB free" in error.detail
                break
        else:
            raise AssertionError("never full")
        await session.check(store)
        session.free()
        await asyncio.sleep(0.1)
        await session.put(store, 1001)
    async with session.opened(RESERVE) as store:
        await session.check(store)


async def a_strangers_file(session: Session) -> None:
    """Without a reserve RocksDB itself runs out of room in a flush, which it does not forgive until it is reopened."""
    async with session.opened(NO_RESERVE) as store:
        for number in range(2000, 2010):
            await session.put(store, number)
        session.fill()
        failures: list[StorageError] = []
        for number in range(2010, 2400):
            try:
                await session.put(store, number)
            except StorageError as error:
                failures.append(error)
                if isinstance(error, OutcomeUnknown):
                    session.in_doubt |= {b"k%d" % (number % 20)}
                await session.check(store)
                break
        assert failures, "never full"
        session.free()
        await until(lambda: store.problem is None)
        for number in range(3000, 3050):
            await session.put(store, number)
        await session.check(store)
    async with session.opened(RESERVE) as store:
        await session.check(store)


async def a_failed_flush(session: Session) -> None:
    """RocksDB's flush fails behind the writes: that is known at once, not by the next write, which would fail."""
    async with session.opened(NO_RESERVE) as store:
        for number in range(4000, 4004):
            await session.put(store, number)
        await until(session.has_spare_segment)
        session.fill()
        await session.put(store, 4004)
        # The next one is in the next segment, so a flush begins, which may fail before this one is applied.
        session.in_doubt = frozenset({b"k5"})
        with suppress(OutcomeUnknown):
            await session.put(store, 4005)
        await until(lambda: store.problem is not None)
        await session.check(store)
        session.free()
        await until(lambda: store.problem is None)
        await session.put(store, 5000)
        await session.check(store)
    async with session.opened(NO_RESERVE) as store:
        await session.check(store)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not come to pass")


async def main(folder: Path) -> None:
    session = Session(folder)
    await own_writes(session)
    await a_strangers_file(session)
    await a_failed_flush(Session(folder / "flush"))
    sys.stdout.write("recovered\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
