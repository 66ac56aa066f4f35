"""From a URL to an open store."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.storage.codec.encoded import Backend, EncodedStore
from holdfast.storage.codec.identity import check_identity
from holdfast.storage.errors import InvalidStoreUrl
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store


@asynccontextmanager
async def open_store(url: str, options: StoreOptions | None = None) -> AsyncIterator[Store]:
    """The store as services use it: its identity is checked, its values are decoded.

    `async with open_store("disk:///var/lib/holdfast") as store: …`
    """
    options = options or StoreOptions()
    async with open_backend(url, options) as backend:
        await check_identity(backend, options.keyring, options.bundle_path)
        if options.keyring is None:
            yield backend
        else:
            yield EncodedStore(backend, options.keyring, options.compression)


def open_backend(url: str, options: StoreOptions) -> AbstractAsyncContextManager[Backend]:
    """The store as stored: what a backup, a restore or a migration works on. Raises InvalidStoreUrl at once."""
    kind, separator, _ = url.partition("://")
    if not separator or kind not in _OPENERS:
        known = ", ".join(f"{name}://" for name in _OPENERS)
        raise InvalidStoreUrl(f"storage URL {kind!r}: unknown kind; use one of {known}")
    return _OPENERS[kind](url, options)


def _open_memory(url: str, options: StoreOptions) -> AbstractAsyncContextManager[Backend]:
    from holdfast.storage.memory import open_memory

    if url != "mem://":
        raise InvalidStoreUrl(f"{url}: a store in memory has no name; write mem://")
    return open_memory(options)


def _open_disk(url: str, options: StoreOptions) -> AbstractAsyncContextManager[Backend]:
    from holdfast.storage.disk.store import open_disk

    return open_disk(disk_folder(url), options)


def _open_postgres(url: str, options: StoreOptions) -> AbstractAsyncContextManager[Backend]:
    from holdfast.storage.postgres.store import open_postgres

    return open_postgres(url, options)


def disk_folder(url: str) -> Path:
    """The folder of a `disk://` URL; `disk:///var/lib/x` is absolute, `disk://~/x` is below the home folder."""
    parts = urlsplit(url)
    folder = unquote(parts.netloc + parts.path)
    if not folder or "\0" in folder or parts.query or parts.fragment:
        raise InvalidStoreUrl(f"{url}: a disk store is named by its folder, as in disk:///var/lib/holdfast")
    return Path(folder).expanduser().absolute()


# Each backend is imported when it is asked for: a disk store needs no database driver, and the other way round.
_OPENERS = {
    "mem": _open_memory,
    "disk": _open_disk,
    "postgres": _open_postgres,
    "postgresql": _open_postgres,
}
