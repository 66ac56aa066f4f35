"""Many messages at once: split into batches that a server takes, each of them in one commit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import ApiError, UnexpectedAnswer, error_of
from holdfast.client.queue import request
from holdfast.client.queue.calls import QueueCalls
from holdfast.client.queue.delivery import DeliveryClaim
from holdfast.client.queue.message import Enqueued, Outgoing
from holdfast.client.wire.call import Answer, Members
from holdfast.client.wire.flow import Flow
from holdfast.client.wire.request import json_bytes

BATCH_MAX: Final = 1000
_BATCH_BYTES_MAX: Final = 4 * 1024 * 1024

NewMessage = Outgoing | bytes | str
"""Bytes and text stand for a message with this payload."""


@dataclass(frozen=True, slots=True)
class AckResult:
    """What became of one ack among many; `error` says why it was refused."""

    message_id: str
    error: ApiError | None = None

    @property
    def is_acked(self) -> bool:
        return self.error is None


def enqueue_many(
    calls: QueueCalls, messages: Iterable[NewMessage], correlation_id: str, *, txn_id: str = ""
) -> Flow[list[Enqueued]]:
    """What the queue took, in the order given. A batch is taken whole or not at all."""
    enqueued: list[Enqueued] = []
    correlation_id = correlation_id or calls.correlation_id()
    for batch in _batches(messages):
        call = request.enqueue_batch(calls.namespace, calls.name, batch, correlation_id, txn_id=txn_id)
        answer = yield from calls.channel.send(call)
        found = [Enqueued.read(item) for item in answer.expect(200).members().items("messages")]
        if len(found) != len(batch):
            raise UnexpectedAnswer("a batch whose answer has another number of messages")
        enqueued += found
    return enqueued


def _batches(messages: Iterable[NewMessage]) -> Iterator[list[Outgoing]]:
    batch: list[Outgoing] = []
    size_bytes = 0
    for message in messages:
        outgoing = message if isinstance(message, Outgoing) else Outgoing(payload=message)
        own_bytes = _size_bytes(outgoing)
        if batch and (len(batch) == BATCH_MAX or size_bytes + own_bytes > _BATCH_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(outgoing)
        size_bytes += own_bytes
    if batch:
        yield batch


def _size_bytes(message: Outgoing) -> int:
    attributes_bytes = len(json_bytes(message.attributes)) if message.attributes else 0
    return attributes_bytes + len(request.in_memory(message))


def ack_many(calls: QueueCalls, claims: Sequence[DeliveryClaim]) -> Flow[list[AckResult]]:
    """Each stands for itself: one that is refused does not stop the others."""
    results: list[AckResult] = []
    for start in range(0, len(claims), BATCH_MAX):
        batch = claims[start : start + BATCH_MAX]
        members = [request.claim_members(claim.message, claim.meta_etag) for claim in batch]
        call = request.ack_batch(calls.namespace, calls.name, members, calls.correlation_id())
        answer = yield from calls.channel.send(call)
        results += _resolved(batch, answer)
    return results


def _resolved(batch: Sequence[DeliveryClaim], answer: Answer) -> list[AckResult]:
    told = answer.expect(200).members().items("results")
    if len(told) != len(batch):
        raise UnexpectedAnswer("a batch whose answer has another number of results")
    return [_resolve(claim, result) for claim, result in zip(batch, told, strict=True)]


def _resolve(claim: DeliveryClaim, told: Members) -> AckResult:
    if told.boolean("acked"):
        claim.resolve()
        return AckResult(claim.name)
    error = error_of(told.text("error"), told.text("detail"))
    lost_because = claim.verdict(error)
    if lost_because is not None:
        claim.lose(lost_because)
    return AckResult(claim.name, error)
