"""The backends under test, each as something that can be opened, closed and opened again."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.storage.codec.encoded import EncodedStore
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.opening import open_backend
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store

SMALL = StoreOptions(journal_segment_bytes=1 << 20, free_bytes_min=0, postgres_poll_interval_s=0.2)
KEYRING = Keyring(bytes(range(32)))
BACKENDS = ("mem", "disk", "disk-encrypted", "postgres")


class Backend(NamedTuple):
    """`open(options)` gives the same store each time, except in memory, where each is new."""

    name: str
    open: Callable[[StoreOptions], AbstractAsyncContextManager[Store]]

    @property
    def is_durable(self) -> bool:
        return self.name != "mem"


def disk_backend(folder: Path, *, encrypted: bool = False) -> Backend:
    url = f"disk://{folder}"
    if encrypted:
        return Backend("disk-encrypted", partial(_open_encrypted, url))
    return Backend("disk", partial(open_backend, url))


def memory_backend(*, encrypted: bool = False) -> Backend:
    return Backend("mem", partial(_open_encrypted if encrypted else open_backend, "mem://"))


def postgres_backend(url: str, *, encrypted: bool = False) -> Backend:
    return Backend("postgres", partial(_open_encrypted if encrypted else open_backend, url))


@asynccontextmanager
async def _open_encrypted(url: str, options: StoreOptions) -> AsyncIterator[Store]:
    # What is alone is synced by the loop itself here, so that this way sees the whole suite as well.
    async with open_backend(url, replace(options, keyring=KEYRING, loop_syncs_after=0)) as backend:
        yield EncodedStore(backend, KEYRING)
