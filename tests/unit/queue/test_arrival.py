"""A message on its way into the store: what memory keeps of it."""

import pytest

from holdfast.queue.layer.message.arrival import Arrival
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import MessageState, QueueMessage
from holdfast.storage.records_pb2 import Payload


@pytest.mark.parametrize(("size_bytes", "is_kept"), [(100, True), (60_000, False)])
def test_a_large_message_waits_in_the_store_alone(size_bytes: int, is_kept: bool) -> None:
    message = QueueMessage(payload=Payload(inline=bytes(size_bytes), size_bytes=size_bytes))
    arrival = Arrival(QueueAddress("default", "orders"), "id", b"place", message, MessageState())

    entry = arrival.entry(1)

    assert (entry.message is not None) is is_kept
