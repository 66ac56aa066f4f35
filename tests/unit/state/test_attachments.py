"""Attachments over a store: published or dropped with their transaction, and nothing is left behind."""

from collections.abc import AsyncIterator

import pytest

from holdfast.leases.layer.errors import LeaseRequired
from holdfast.state.layer.attachment.records import ATTACHMENTS_PER_KEY_MAX
from holdfast.state.layer.attachment.rules import Upload
from holdfast.state.layer.document.holding import STAGED_BYTES_MAX
from holdfast.state.layer.errors import AttachmentTooLarge, TooManyAttachments, TransactionTooLarge
from holdfast.storage.intake import INLINE_BYTES_MAX
from holdfast.storage.keys import unpack
from holdfast.storage.port import RANGE_LIMIT_MAX, Store
from holdfast.txn.layer.port import Member
from tests.infra.document_plane import Plane

A, B = Member("default", "a"), Member("default", "b")
LARGE = b"0123456789abcdef" * (INLINE_BYTES_MAX // 8)


async def tables(store: Store) -> dict[str, int]:
    """How many records each table has."""
    counts: dict[str, int] = {}
    start = b""
    while page := await store.range(start, None, limit=RANGE_LIMIT_MAX, keys_only=True):
        for record in page:
            name = str(unpack(record.key)[0])
            counts[name] = counts.get(name, 0) + 1
        start = page[-1].key + b"\x00"
    return {
        name: count for name, count in counts.items() if name in {"att", "attdata", "stageatt", "stagecost"}
    }


async def blobs(store: Store) -> int:
    await store.blobs.sweep(grace_s=-10)
    return len([info async for info in store.blobs.list()])


async def test_an_upload_that_breaks_off_stages_nothing(plane: Plane) -> None:
    claim = await plane.acquire(A)

    async def broken() -> AsyncIterator[bytes]:
        yield LARGE
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await plane.attachments.put(A, claim, Upload("a", "text/plain", None, False), broken())
    with pytest.raises(AttachmentTooLarge):
        await plane.attachments.put(A, claim, Upload("a", "text/plain", 10, False), _once(LARGE))

    assert await plane.names(A, claim) == []
    assert (await plane.state.get_leased(A, claim)).version == 0
    assert await blobs(plane.store) == 0


async def test_without_the_lease_no_piece_is_read(plane: Plane) -> None:
    claim = await plane.acquire(A)
    await plane.release(A, claim)

    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("read")
        yield b""

    with pytest.raises(LeaseRequired):
        await plane.attachments.put(A, claim, Upload("a", "text/plain", None, False), never())


async def test_a_lease_that_ends_during_the_upload_stages_nothing(plane: Plane) -> None:
    claim = await plane.acquire(A)

    async def slow() -> AsyncIterator[bytes]:
        yield b"one"
        await plane.release(A, claim)

    with pytest.raises(LeaseRequired):
        await plane.attachments.put(A, claim, Upload("a", "text/plain", None, False), slow())

    assert await plane.names(A) == []
    assert await tables(plane.store) == {}


async def test_a_key_has_a_bounded_number_of_them_and_may_be_cleared_and_removed_then(plane: Plane) -> None:
    claim = await plane.acquire(A)
    for number in range(ATTACHMENTS_PER_KEY_MAX):
        await plane.attach(A, claim, f"{number}", b"x")
    with pytest.raises(TooManyAttachments):
        await plane.attach(A, claim, "one more", b"x")
    await plane.release(A, claim)
    claim = await plane.acquire(A)

    with pytest.raises(TooManyAttachments):
        await plane.attach(A, claim, "one more", b"x")
    count, _ = await plane.attachments.delete_all(A, claim)
    await plane.attach(A, claim, "one more", b"x")
    await plane.release(A, claim)

    assert count == ATTACHMENTS_PER_KEY_MAX
    assert await plane.names(A) == ["one more"]
    assert await tables(plane.store) == {"att": 1, "attdata": 1}


async def test_a_transaction_stages_no_more_than_one_commit_takes(plane: Plane) -> None:
    first = await plane.acquire(A)
    second = await plane.acquire(B, str(first.txn_id))
    staged = 0

    with pytest.raises(TransactionTooLarge):
        for number in range(STAGED_BYTES_MAX // 1024):
            member, claim = ((A, first), (B, second))[number % 2]
            await plane.attach(member, claim, f"{number}", b"x")
            staged += 1
    await plane.release(B, second)

    assert len(await plane.names(A)) + len(await plane.names(B)) == staged
    assert await tables(plane.store) == {"att": staged, "attdata": staged}


async def test_documents_of_joined_keys_count_while_they_are_staged(plane: Plane) -> None:
    text = b'"' + b"x" * (INLINE_BYTES_MAX - 2) + b'"'
    first = await plane.acquire(A)
    claims = [
        (
            Member("default", f"k{number}"),
            await plane.acquire(Member("default", f"k{number}"), str(first.txn_id)),
        )
        for number in range(STAGED_BYTES_MAX // INLINE_BYTES_MAX + 1)
    ]
    for member, claim in claims[:-1]:
        await plane.update(member, claim, text)
        await plane.update(member, claim, text)

    with pytest.raises(TransactionTooLarge):
        await plane.update(*claims[-1], text)
    await plane.update(*claims[0], b"1")
    await plane.update(*claims[-1], text[:1000] + b'"')
    await plane.release(A, first)

    view = await plane.state.get_public(claims[1][0])
    assert view.content is not None
    assert view.content.inline == text
    assert await tables(plane.store) == {}


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
