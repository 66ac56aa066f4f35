"""Errors of the operating system become ours."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.storage.errors import StoreFull, StoreUnavailable

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def from_os(doing: str) -> Iterator[None]:
    """Turn an OSError into StoreFull or StoreUnavailable, with what was being done."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in NO_ROOM:
            raise StoreFull(f"{doing}: {reason}; free some space", retry_after_s=5.0) from error
        raise StoreUnavailable(f"{doing}: {reason}") from error
