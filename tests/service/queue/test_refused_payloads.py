"""A payload that came in for a message that was refused is gone at once; it does not wait for the sweep."""

from pathlib import Path

import pytest

from holdfast.common import failpoint
from holdfast.common.errors import InvalidBody
from holdfast.queue.layer.errors import InvalidTxn
from holdfast.queue.layer.message.types import EnqueueOrder
from holdfast.queue.protocol.lockd.multipart.intake import take_batch, take_message
from holdfast.queue.protocol.lockd.multipart.reader import MultipartError
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StoreReadOnly
from holdfast.storage.intake import INLINE_BYTES_MAX, pieces_of
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from tests.service.queue.words import ORDERS, Queue

LARGE = b"0123456789abcdef" * (INLINE_BYTES_MAX // 8)
BOUNDARY = b"border"


async def count_blobs(store: Store) -> int:
    return len([info async for info in store.blobs.list()])


def body_of(*parts: tuple[bytes, bytes], is_ended: bool = True) -> bytes:
    head = b'--border\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    return b"".join(head % part for part in parts) + (b"--border--\r\n" if is_ended else b"")


def order_of(text: bytes) -> EnqueueOrder:
    if text == b"wrong":
        raise InvalidBody("wrong")
    return EnqueueOrder(ORDERS, correlation_id="corr")


async def test_of_messages_that_are_refused_nothing_is_left(queue: Queue, store: Store) -> None:
    arrivals = queue.service.arrivals
    contents = [await arrivals.content_of(ORDERS, LARGE) for _ in range(3)]
    orders = [EnqueueOrder(ORDERS, correlation_id="corr", txn_id="no xid") for _ in contents]
    before = await count_blobs(store)

    with pytest.raises(InvalidTxn):
        await arrivals.enqueue(list(zip(orders, contents, strict=True)))

    assert (before, await count_blobs(store)) == (3, 0)


async def test_a_message_that_is_taken_keeps_its_payload(queue: Queue, store: Store) -> None:
    await queue.enqueue(LARGE)

    assert await count_blobs(store) == 1
    assert (await queue.dequeue()).message.payload_bytes == len(LARGE)


@pytest.mark.parametrize(
    "body",
    [
        body_of((b"payload", LARGE), (b"meta", b"wrong")),
        body_of((b"meta", b"{}"), (b"payload", LARGE), (b"meta", b"{}")),
        body_of((b"meta", b"{}"), (b"payload", LARGE), is_ended=False),
    ],
    ids=["wrong meta behind it", "a second meta", "no end"],
)
async def test_of_a_body_that_is_refused_nothing_is_left(queue: Queue, store: Store, body: bytes) -> None:
    with pytest.raises((InvalidBody, MultipartError)):
        await take_message(queue.service, BOUNDARY, pieces_of(body), order_of)

    assert await count_blobs(store) == 0


async def test_a_payload_in_front_of_its_meta_is_kept_once(queue: Queue, store: Store) -> None:
    body = body_of((b"payload", LARGE), (b"meta", b"{}"))

    taken = await take_message(queue.service, BOUNDARY, pieces_of(body), order_of)
    await queue.service.arrivals.enqueue([taken])

    assert await count_blobs(store) == 1


@pytest.mark.parametrize("payload", [LARGE, LARGE * 16], ids=["read ahead", "streamed"])
async def test_of_a_batch_that_is_refused_nothing_is_left(queue: Queue, store: Store, payload: bytes) -> None:
    body = body_of((b"meta", b"{}"), (b"payload", payload), (b"meta", b"wrong"), (b"payload", b"small"))

    with pytest.raises(InvalidBody):
        await take_batch(queue.service, BOUNDARY, pieces_of(body), order_of)

    assert await count_blobs(store) == 0


async def test_a_payload_whose_commit_may_have_happened_is_left_to_the_sweep(tmp_path: Path) -> None:
    """The device may have the record that refers to it: opening the store again tells."""
    async with open_disk(tmp_path, StoreOptions()) as store:
        queue = Queue(store)
        async with queue.service.running():
            with failpoint.armed("journal.synced:error"), pytest.raises(StoreReadOnly):
                await queue.enqueue(LARGE)

    async with open_disk(tmp_path, StoreOptions()) as store:
        queue = Queue(store)
        async with queue.service.running():
            (delivery,) = await queue.dequeue_many()
            payload = queue.service.open_payload(ORDERS, delivery.body)
            assert b"".join([piece async for piece in payload]) == LARGE
