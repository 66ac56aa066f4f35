"""What a rule did to messages, for the memory of the process that ran it: told after the commit, in this order."""

from typing import NamedTuple

from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import MessageState


class MessageChange(NamedTuple):
    """A message stands in this place now; without a state it is gone."""

    address: QueueAddress
    message_id: str
    place: bytes = b""
    state: MessageState | None = None


class Changes:
    """Filled by the rules of one transaction."""

    __slots__ = ("dead", "deadlines_ms", "messages")

    def __init__(self) -> None:
        self.messages: list[MessageChange] = []
        self.dead = 0
        """How many became dead letters."""
        self.deadlines_ms: list[int] = []
        """The deadlines of messages that the transaction publishes."""

    def moved(self, address: QueueAddress, message_id: str, place: bytes, state: MessageState) -> None:
        self.messages.append(MessageChange(address, message_id, place, state))

    def gone(self, address: QueueAddress, message_id: str) -> None:
        self.messages.append(MessageChange(address, message_id))
