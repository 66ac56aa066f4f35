"""A file that appears under its name only when it is whole and durable."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.storage.errors import from_os


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Write to it; leaving with an error leaves nothing. Only its owner may read it."""
    with from_os(f"writing {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        file = os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _system_call(name: str) -> Callable[..., int]:
    """Of Linux, and what the standard library does not have; elsewhere nothing is done."""
    with suppress(AttributeError, OSError):
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
        return found
    return lambda *arguments: 0


_sync_file_range: Final = _system_call("sync_file_range")
_SYNC_FILE_RANGE_WRITE: Final = 2


def begin_sync(descriptor: int) -> None:
    """Have the kernel write what it holds of a file, without waiting: its sync at the end finds little left to do.

    Says nothing about errors, and promises nothing: that is up to the sync.
    """
    _sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
