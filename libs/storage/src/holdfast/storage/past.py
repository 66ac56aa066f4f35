"""Which revisions of the past can be read, and which can be compacted; the bounds are etcd's."""

from holdfast.storage.errors import Compacted, FutureRevision


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
