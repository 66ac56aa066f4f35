"""Errors of the operating system become ours."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.storage.errors import StorageError, StoreFull, StoreReadOnly, StoreUnavailable

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
RETRY_AFTER_S = 5.0


def no_room(cause: str) -> StoreFull:
    return StoreFull(
        f"{cause}; free some space or raise the quota, and writes go on by themselves; reads go on meanwhile",
        retry_after_s=RETRY_AFTER_S,
    )


def mounted_read_only(cause: str) -> StoreReadOnly:
    return StoreReadOnly(f"{cause}; mount the file system for writing, then start again")


def storage_error(error: OSError, doing: str) -> StorageError:
    """The error of the port that says the same, with the words of the operating system."""
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        return no_room(f"{doing}: {reason}")
    if error.errno == errno.EROFS:
        return mounted_read_only(f"{doing}: {reason}")
    return StoreUnavailable(f"{doing}: {reason}")


@contextmanager
def from_os(doing: str) -> Iterator[None]:
    """Turn an OSError into one of ours, with what was being done."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing) from error
