"""The rules of staged changes: what a transaction sees, what it stages, what its commit publishes. Pure.

version   first staged change: committed + 1, kept by later ones; each removal adds one more
content   an update replaces what was staged and takes back a removal; a removal drops what was staged
"""

from typing import NamedTuple

from holdfast.state.errors import EtagMismatch, VersionConflict
from holdfast.storage.layers_pb2 import Document, Stage
from holdfast.storage.leasing import Current
from holdfast.storage.records_pb2 import Payload


class Expectation(NamedTuple):
    """What a conditional write expects; None: anything."""

    version: int | None = None
    etag: str | None = None


class View(NamedTuple):
    """A key as one reader sees it. No etag: there is no document."""

    version: int
    etag: str
    content: Payload | None
    is_hidden: bool


NOTHING = Document()


def committed_view(document: Document) -> View:
    content = document.content if document.etag else None
    return View(document.version, document.etag, content, document.is_hidden)


def staged_view(document: Document, stage: Stage | None) -> View:
    """What the transaction itself sees."""
    if stage is None:
        return committed_view(document)
    is_hidden = stage.is_hidden if stage.HasField("is_hidden") else document.is_hidden
    if stage.etag:
        return View(stage.version, stage.etag, stage.content, is_hidden)
    if stage.is_removed:
        return View(stage.version, "", None, is_hidden)
    return committed_view(document)._replace(version=stage.version, is_hidden=is_hidden)


def check(expectation: Expectation, document: Document, stage: Stage | None) -> None:
    """Compare with the staged version and ETag where there are some, else with the committed ones."""
    version = stage.version if stage is not None else document.version
    if expectation.version is not None and expectation.version != version:
        raise VersionConflict("state version mismatch", Current(version, document.etag))
    etag = stage.etag if stage is not None and stage.etag else document.etag
    if expectation.etag is not None and expectation.etag != etag:
        raise EtagMismatch("current state etag does not match", Current(version, etag))


def updated(document: Document, stage: Stage | None, content: Payload, etag: str) -> Stage:
    staged = _opened(document, stage)
    staged.is_removed = False
    staged.etag = etag
    staged.content.CopyFrom(content)
    return staged


def hidden(document: Document, stage: Stage | None, is_hidden: bool) -> Stage:
    staged = _opened(document, stage)
    staged.is_hidden = is_hidden
    return staged


def removed(document: Document, stage: Stage | None) -> Stage | None:
    """None: there is nothing to remove."""
    if not document.etag and stage is None:
        return None
    version = stage.version if stage is not None else document.version
    return Stage(version=version + 1, is_removed=True)


def published(document: Document, stage: Stage, now_s: int) -> Document:
    """What everybody sees after the commit."""
    view = staged_view(document, stage)
    return Document(
        version=stage.version,
        etag=view.etag,
        content=view.content,
        is_hidden=view.is_hidden,
        updated_at_s=now_s,
    )


def blobs_of(record: Document | Stage) -> tuple[str, ...]:
    """The blobs that a record must keep alive."""
    return (record.content.blob.id,) if record.content.HasField("blob") else ()


def _opened(document: Document, stage: Stage | None) -> Stage:
    staged = Stage(version=document.version + 1)
    if stage is not None:
        staged.CopyFrom(stage)
    return staged
