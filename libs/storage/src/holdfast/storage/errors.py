"""What can go wrong in a store. Foreign errors (RocksDB, asyncpg, OSError) become these at the backend."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from holdfast.common.errors import HoldfastError


class StorageError(HoldfastError):
    """Base of the storage errors."""

    code, status = "storage_error", 500

    def copy_for_caller(self) -> Self:
        """The same for one more caller: a traceback grows where an error is raised."""
        twin = type(self).__new__(type(self), *self.args)
        twin.__dict__.update(self.__dict__)
        return twin


class Conflict(StorageError):
    """An expectation of a batch does not hold; nothing of the batch was written."""

    code, status = "cas_mismatch", 409

    def __init__(
        self, key: bytes, *, detail: str = "changed since it was read; read it again and retry"
    ) -> None:
        super().__init__(f"key {key!r} {detail}")
        self.key = key


class TransactionContended(StorageError):
    """`transact` lost to other writers as often as it was allowed to try."""

    code, status = "cas_mismatch", 409

    def __init__(self, key: bytes, attempts: int) -> None:
        super().__init__(
            f"transaction lost {attempts} times, last on key {key!r}; retry later", retry_after_s=1.0
        )
        self.key = key
        self.attempts = attempts


class InvalidBatch(StorageError):
    """A batch that breaks a rule of the port (key or value too large, a key both put and deleted)."""

    code, status = "invalid_batch", 400


class Compacted(StorageError):
    """The history asked for is gone; `oldest_revision` is the first one that can be read, and watched after."""

    code, status = "compacted", 410

    def __init__(self, asked_revision: int, oldest_revision: int) -> None:
        super().__init__(
            f"required revision {asked_revision} has been compacted; read at revision {oldest_revision} or later, "
            "and watch after it"
        )
        self.asked_revision = asked_revision
        self.oldest_revision = oldest_revision


class FutureRevision(StorageError):
    """A revision was asked for that the store has not reached yet; `newest_revision` is the one it is at."""

    code, status = "future_revision", 400

    def __init__(self, asked_revision: int, newest_revision: int) -> None:
        super().__init__(
            f"required revision is a future revision: {asked_revision} was asked for, "
            f"the store is at {newest_revision}"
        )
        self.asked_revision = asked_revision
        self.newest_revision = newest_revision


class WatcherTooSlow(StorageError):
    """The watcher fell behind and was cut off; watch again after `resume_revision`."""

    code, status = "watcher_too_slow", 409

    def __init__(self, resume_revision: int) -> None:
        super().__init__(f"watcher fell behind and was cut off; watch again after revision {resume_revision}")
        self.resume_revision = resume_revision


class StoreUnavailable(StorageError):
    """The backend does not answer now; what was asked did not happen."""

    code, status = "storage_unavailable", 503


class OutcomeUnknown(StorageError):
    """The backend vanished during a commit and did not come back in time to say how it ended."""

    code, status = "storage_outcome_unknown", 503


class StoreReadOnly(StorageError):
    """A sync failed: what is on the disk is in doubt, so nothing more is written until it is opened again."""

    code, status = "storage_read_only", 503


class StoreFull(StorageError):
    """No room on the device. Reads go on; writes go on by themselves once there is room."""

    code, status = "storage_full", 507


class StoreLocked(StorageError):
    """Another process owns this store."""

    code, status = "storage_locked", 503


class StoreCorrupt(StorageError):
    """Stored bytes fail their checksum. Never skipped: restore a backup."""

    code, status = "storage_corrupt", 500


class StoreClosed(StorageError):
    """The store is closed or closing."""

    code, status = "storage_closed", 503


class BlobNotFound(StorageError):
    """No such blob: never written, or swept because no record referred to it."""

    code, status = "blob_not_found", 404


class DecryptionError(StorageError):
    """Stored bytes do not decrypt: altered, cut, moved to another key, or written under an unknown root key."""

    code, status = "decryption_failed", 500


class EncryptionMismatch(StorageError):
    """The store was created encrypted and is opened without keys, or the other way round."""

    code, status = "encryption_mismatch", 500


class InvalidArchive(StorageError):
    """A backup or an export that is damaged, cut short, or something else."""

    code, status = "invalid_archive", 400


class InvalidStoreUrl(StorageError):
    """The storage URL names no backend, or one with wrong parts."""

    code, status = "invalid_store_url", 400


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


def check_readable(revision: int, *, newest: int, compacted: int) -> None:
    """Compacting at a revision keeps that revision readable: the changes after it are still there."""
    if revision > newest:
        raise FutureRevision(revision, newest)
    if revision < compacted:
        raise Compacted(revision, compacted)


def check_compactable(revision: int, *, newest: int, compacted: int) -> None:
    if revision > newest:
        raise FutureRevision(revision, newest)
    if revision <= compacted:
        raise Compacted(revision, compacted)
