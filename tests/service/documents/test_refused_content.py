"""What came in for a change that was refused is gone at once, on every backend; it does not wait for the sweep."""

from collections.abc import AsyncIterator

import pytest

from holdfast.leases.layer.errors import LeaseRequired
from holdfast.state.layer.attachment.rules import Upload
from holdfast.state.layer.document.intake import ExpectedBody
from holdfast.state.layer.document.staging import ANYTHING, Expectation
from holdfast.state.layer.errors import VersionConflict
from holdfast.storage.intake import pieces_of
from holdfast.storage.port import Store
from tests.infra.document_plane import DOCUMENT_BYTES_MAX, Plane
from tests.unit.state.test_attachments import LARGE, A

DOCUMENT = b'{"text":"%b"}' % (b"x" * len(LARGE))


async def count_blobs(store: Store) -> int:
    return len([info async for info in store.blobs.list()])


async def test_of_an_update_that_is_refused_at_its_end_nothing_is_left(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)
    content = await plane.state.take_document(
        A, pieces_of(DOCUMENT), ExpectedBody(None, None), DOCUMENT_BYTES_MAX
    )
    before = await count_blobs(plane.store)

    with pytest.raises(VersionConflict):
        await plane.state.update(A, claim, content, Expectation(version=7))

    assert (before, await count_blobs(plane.store)) == (1, 0)


async def test_of_an_update_whose_lease_ended_meanwhile_nothing_is_left(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)
    content = await plane.state.content_of(A, DOCUMENT)
    await plane.release(A, claim)

    with pytest.raises(LeaseRequired):
        await plane.state.update(A, claim, content, ANYTHING)

    assert await count_blobs(plane.store) == 0


async def test_an_update_that_is_taken_keeps_its_content(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)

    await plane.update(A, claim, DOCUMENT)
    with pytest.raises(VersionConflict):
        await plane.state.update(A, claim, await plane.state.content_of(A, DOCUMENT), Expectation(version=7))
    await plane.release(A, claim)

    assert await plane.state.read_whole(A, await plane.state.get_public(A)) == DOCUMENT
    assert await count_blobs(plane.store) == 1


async def test_of_an_attachment_that_is_refused_at_its_end_nothing_is_left(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)

    async def slow() -> AsyncIterator[bytes]:
        yield LARGE
        await plane.release(A, claim)

    with pytest.raises(LeaseRequired):
        await plane.attachments.put(A, claim, Upload("a", "text/plain", None, False), slow())

    assert await count_blobs(plane.store) == 0


async def test_of_an_attachment_whose_name_was_taken_meanwhile_nothing_is_left(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)

    async def slow() -> AsyncIterator[bytes]:
        yield LARGE
        await plane.attach(A, claim, "a", b"first")

    attached = await plane.attachments.put(A, claim, Upload("a", "text/plain", None, True), slow())

    assert attached.is_noop
    assert await count_blobs(plane.store) == 0
