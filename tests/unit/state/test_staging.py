"""The rules of staged changes, by themselves."""

import pytest

from holdfast.state.layer.document import staging
from holdfast.state.layer.document.staging import NOTHING, Expectation
from holdfast.state.layer.errors import EtagMismatch, VersionConflict
from holdfast.state.layer.records_pb2 import Document, Stage
from holdfast.storage.records_pb2 import Payload

COMMITTED = Document(version=1, etag="one", content=Payload(inline=b"1"))


def content(text: bytes) -> Payload:
    return Payload(inline=text, size_bytes=len(text))


def test_the_first_change_takes_the_next_version_and_later_ones_keep_it() -> None:
    first = staging.updated(COMMITTED, None, content(b"2"), "two")
    second = staging.updated(COMMITTED, first, content(b"3"), "three")
    third = staging.hidden(COMMITTED, second, True)

    assert (first.version, second.version, third.version) == (2, 2, 2)
    assert (third.etag, third.content.inline, third.is_hidden) == ("three", b"3", True)


def test_each_removal_adds_one_more() -> None:
    once = staging.removed(COMMITTED, None)
    twice = staging.removed(COMMITTED, once)
    after_update = staging.removed(COMMITTED, staging.updated(COMMITTED, None, content(b"2"), "two"))

    assert once is not None
    assert twice is not None
    assert after_update is not None
    assert (once.version, twice.version, after_update.version) == (2, 3, 3)
    assert after_update.etag == ""


def test_there_is_nothing_to_remove_where_nothing_is() -> None:
    assert staging.removed(NOTHING, None) is None
    assert staging.removed(Document(version=4), None) is None


def test_an_update_takes_a_removal_back() -> None:
    removed = staging.removed(COMMITTED, None)
    updated = staging.updated(COMMITTED, removed, content(b"2"), "two")

    assert updated.version == 2
    assert staging.published(COMMITTED, updated, 5).etag == "two"


def test_a_change_of_attributes_alone_keeps_the_document_under_the_staged_version() -> None:
    stage = staging.hidden(COMMITTED, None, True)

    view = staging.staged_view(COMMITTED, stage)

    assert (view.version, view.etag, view.is_hidden) == (2, "one", True)
    published = staging.published(COMMITTED, stage, 5)
    assert (published.version, published.etag, published.is_hidden) == (2, "one", True)


def test_a_removal_publishes_a_version_without_a_document() -> None:
    stage = staging.removed(COMMITTED, None)
    assert stage is not None

    published = staging.published(COMMITTED, stage, 5)

    assert (published.version, published.etag) == (2, "")
    assert staging.committed_view(published).content is None


@pytest.mark.parametrize(
    "expectation", [Expectation(), Expectation(1), Expectation(1, "one"), Expectation(None, "one")]
)
def test_expectations_hold_against_what_is_committed(expectation: Expectation) -> None:
    staging.check(expectation, COMMITTED, None)


def test_expectations_are_compared_with_what_is_staged() -> None:
    stage = Stage(version=2, etag="two")

    staging.check(Expectation(2, "two"), COMMITTED, stage)
    with pytest.raises(VersionConflict) as conflict:
        staging.check(Expectation(1), COMMITTED, stage)
    with pytest.raises(EtagMismatch) as mismatch:
        staging.check(Expectation(None, "one"), COMMITTED, stage)

    assert conflict.value.fields() == {"current_version": 2, "current_etag": "one"}
    assert mismatch.value.fields() == {"current_version": 2, "current_etag": "two"}
