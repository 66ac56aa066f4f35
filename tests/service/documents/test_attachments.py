"""Attachments on every backend: published or dropped with their transaction, and nothing is left behind."""

from holdfast.state.layer.attachment.rules import Selector
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.txn.layer.port import Decision
from tests.infra.document_plane import Plane
from tests.unit.state.test_attachments import LARGE, A, blobs, tables


async def test_small_and_large_ones_are_published_with_their_transaction(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)

    await plane.attach(A, claim, "small", b"one")
    await plane.attach(A, claim, "large", LARGE)
    await plane.attach(A, claim, "empty", b"")
    public_before = await plane.names(A)
    mine = await plane.download(A, "large", claim), await plane.download(A, "small", claim)
    await plane.release(A, claim)

    assert public_before == []
    assert mine == (LARGE, b"one")
    assert await plane.names(A) == ["empty", "large", "small"]
    assert [await plane.download(A, name) for name in ("small", "large", "empty")] == [b"one", LARGE, b""]
    assert await tables(plane.store) == {"att": 3, "attdata": 1}
    assert await blobs(plane.store) == 1


async def test_a_rollback_leaves_nothing_of_them(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)
    await plane.attach(A, claim, "kept", b"one")
    await plane.release(A, claim)
    claim = await plane.acquire(A)

    await plane.attach(A, claim, "kept", LARGE)
    await plane.attach(A, claim, "new", b"two")
    await plane.attach(A, claim, "new", b"three")
    await plane.release(A, claim, Decision.ROLLBACK)

    assert await plane.names(A) == ["kept"]
    assert await plane.download(A, "kept") == b"one"
    assert await tables(plane.store) == {"att": 1, "attdata": 1}
    assert await blobs(plane.store) == 0


async def test_what_is_replaced_or_deleted_leaves_no_content_behind(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)
    for name in ("a", "b", "c"):
        await plane.attach(A, claim, name, b"one")
    await plane.attach(A, claim, "d", LARGE)
    await plane.release(A, claim)
    claim = await plane.acquire(A)

    await plane.attach(A, claim, "a", LARGE)
    await plane.attach(A, claim, "b", b"two")
    await plane.attachments.delete(A, claim, Selector("c", ""))
    await plane.attachments.delete(A, claim, Selector("d", ""))
    await plane.release(A, claim)

    assert await plane.names(A) == ["a", "b"]
    assert await tables(plane.store) == {"att": 2, "attdata": 1}
    assert await blobs(plane.store) == 1


async def test_a_removal_takes_all_of_them(everywhere: Plane) -> None:
    plane = everywhere
    claim = await plane.acquire(A)
    await plane.update(A, claim, b"1")
    await plane.attach(A, claim, "a", b"one")
    await plane.attach(A, claim, "b", LARGE)
    await plane.release(A, claim)
    claim = await plane.acquire(A)

    await plane.attach(A, claim, "c", b"one")
    await plane.state.remove(A, claim, ANYTHING)
    await plane.attach(A, claim, "d", b"one")
    await plane.release(A, claim)

    assert await plane.names(A) == []
    assert await tables(plane.store) == {}
    assert await blobs(plane.store) == 0
