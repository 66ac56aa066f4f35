"""HTTP in, service call, HTTP out: enqueue, dequeue, subscribe, ack, nack, extend."""

from collections.abc import AsyncIterator
from functools import partial
from time import perf_counter
from typing import Final

from pydantic_core import from_json

from holdfast.common.errors import Draining, ShutdownDraining
from holdfast.common.express.message import (
    JSON_HEADERS,
    Answer,
    AnyAnswer,
    HandOver,
    Header,
    Request,
    json_answer,
)
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Admission, Begins, Duration, Group
from holdfast.common.express.undo import Repeat
from holdfast.common.fields import InvalidNamespace
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain, Waits
from holdfast.common.settings import PlaneSettings
from holdfast.leases.layer.errors import FencingMismatch, LeaseRequired
from holdfast.queue.layer.errors import (
    InvalidTxn,
    MessageLeaseExpired,
    MessageLeaseMismatch,
    MessageNotFound,
    MetadataChanged,
    NoMessages,
    QueueBusy,
    StateNotFound,
    TxnTooLarge,
)
from holdfast.queue.layer.message.types import Delivery, DequeueOrder, EnqueueOrder, ExtendOrder, NackOrder
from holdfast.queue.layer.service import QueueService
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.protocol.lockd.fields import (
    LAST_ERROR_BYTES_MAX,
    InvalidNackIntent,
    InvalidNackLastError,
    InvalidQueue,
    InvalidQueueKey,
    MissingFields,
    MissingOwner,
    MissingQueue,
    claim_of,
    dequeue_order,
    enqueue_order,
    enqueued_json,
    intent_of,
    json_text,
    meta_of,
    seconds,
)
from holdfast.queue.protocol.lockd.framing import framed, headers_of, new_boundary
from holdfast.queue.protocol.lockd.framing_stream import batch_answer, subscription_answer
from holdfast.queue.protocol.lockd.multipart.intake import take_message
from holdfast.queue.protocol.lockd.multipart.reader import (
    InvalidContentType,
    MultipartError,
    boundary_of,
    plain_parts,
)
from holdfast.queue.protocol.lockd.schemas import (
    DELIVERY_CONTENT,
    ENQUEUE_CONTENT,
    AckAnswer,
    AckRequest,
    DequeueRequest,
    EnqueueAnswer,
    ExtendAnswer,
    ExtendRequest,
    NackAnswer,
    NackRequest,
)
from holdfast.queue.protocol.withdrawal import UNDO_DELIVERY
from holdfast.storage.intake import pieces_of
from holdfast.txn.layer.errors import TxnConflict
from holdfast.txn.layer.port import TooManyParticipants

PREFETCH_MAX: Final = 64
WHOLE_BYTES_MAX: Final = 1 << 20
"""Of an answer that is written in one piece."""
UNBOUNDED: Final = 1 << 62
"""As the limit of a body: a payload has any size, and streams."""

QUERY: Final = {"queue": "The queue, when the body names none."}
ENQUEUE_QUERY: Final = {**QUERY, "txn_id": "The transaction that sends it, when `meta` names none."}
CONSUMER_QUERY: Final = {
    **QUERY,
    "namespace": "Its namespace.",
    "owner": "The consumer, when the body names none.",
}
BAD_NAMES: Final = (MissingQueue, InvalidQueue, InvalidNamespace)
CONSUMER_ERRORS: Final = (*BAD_NAMES, MissingOwner, InvalidTxn, NoMessages, QueueBusy, ShutdownDraining)
_RESOLVE_ERRORS: Final = (
    *(MissingFields, InvalidQueueKey, InvalidNamespace, MessageNotFound, MessageLeaseMismatch),
    *(MessageLeaseExpired, MetadataChanged, StateNotFound, LeaseRequired, FencingMismatch),
)
ENQUEUE_ERRORS: Final = (
    *(InvalidContentType, MultipartError, *BAD_NAMES, InvalidTxn),
    *(TxnConflict, TooManyParticipants, TxnTooLarge),
)
ENQUEUE_HEADERS: Final = {
    "X-Correlation-Id": "Stays with the message for its whole life.",
    "X-Txn-ID": "The transaction that sends the message with its commit, when `meta` names none.",
}
PRODUCES: Final = Admission(Group.PRODUCER, Begins.ALWAYS)
ACKS: Final = Admission(Group.ACK)
_MESSAGE_ID: Final = {"X-Correlation-Id": "That of the message; of the first, when there are several."}
_CLAIM_EXAMPLE: Final = {"queue": "orders", "message_id": "…", "lease_id": "…", "meta_etag": "…"}


def asked_wait_s(request: Request) -> int | None:
    """What the body of a dequeue says; one without a body waits for ever."""
    return DequeueRequest.model_validate_json(request.body).wait_seconds if request.body else None


CONSUMES: Final = Admission(Group.CONSUMER, Begins.ALWAYS, asked_wait_s)


def queue_router() -> ExpressRouter:
    """For endpoints that are about one queue."""
    return ExpressRouter(tags=("queue",), service=Role.QUEUE, affinity="queue")


class MessageRoutes:
    """The life of a message. `service` is set while the store is open."""

    service: QueueService

    def __init__(self, settings: PlaneSettings, drain: Drain, waits: Waits, metrics: QueueMetrics) -> None:
        self._metrics = metrics
        self._namespace_default = settings.namespace_default
        self._dequeue_count_max = settings.queue_dequeue_batch_max
        self._drain = drain
        self._waits = waits
        self.router = queue_router()
        self._declare_in()
        self._declare_out()
        self._declare_resolution()

    def _declare_in(self) -> None:
        self.router.add(
            "/v1/queue/enqueue",
            self.enqueue,
            stream_handler=self.enqueue_stream,
            request_content=ENQUEUE_CONTENT,
            response_model=EnqueueAnswer,
            errors=ENQUEUE_ERRORS,
            summary="Put a message into a queue: multipart, a part `meta` with JSON and a part `payload` with any bytes.",
            query_parameters=ENQUEUE_QUERY,
            request_headers=ENQUEUE_HEADERS,
            body_limit_bytes=UNBOUNDED,
            admission=PRODUCES,
        )

    def _declare_out(self) -> None:
        for path, handler, duration, summary in (
            ("dequeue", self.dequeue, Duration.WAITING, "Take the next message, waiting for it if asked to."),
            (
                "dequeueWithState",
                self.dequeue_with_state,
                Duration.WAITING,
                "The same, with a lease on its state.",
            ),
            (
                "subscribe",
                self.subscribe,
                Duration.ENDLESS,
                "Take message after message in one answer that goes on.",
            ),
            (
                "subscribeWithState",
                self.subscribe_with_state,
                Duration.ENDLESS,
                "The same, with leases on their state.",
            ),
        ):
            self.router.add(
                f"/v1/queue/{path}",
                handler,
                request_model=DequeueRequest,
                response_content=DELIVERY_CONTENT,
                errors=CONSUMER_ERRORS,
                summary=summary,
                request_example={"queue": "orders", "owner": "worker-1", "wait_seconds": 10},
                query_parameters=CONSUMER_QUERY,
                response_headers=_MESSAGE_ID,
                is_body_optional=True,
                undo=UNDO_DELIVERY,
                admission=CONSUMES,
                duration=duration,
            )

    def _declare_resolution(self) -> None:
        self.router.add(
            "/v1/queue/ack",
            self.ack,
            request_model=AckRequest,
            response_model=AckAnswer,
            errors=_RESOLVE_ERRORS,
            summary="The message is done: remove it.",
            request_example=_CLAIM_EXAMPLE,
            response_headers=_MESSAGE_ID,
            repeat=Repeat(_acked_before),
            admission=ACKS,
        )
        self.router.add(
            "/v1/queue/nack",
            self.nack,
            request_model=NackRequest,
            response_model=NackAnswer,
            errors=(*_RESOLVE_ERRORS, InvalidNackIntent, InvalidNackLastError),
            summary="Give the message back, at once or after a delay.",
            request_example={**_CLAIM_EXAMPLE, "delay_seconds": 5, "last_error": {"detail": "try later"}},
            response_headers=_MESSAGE_ID,
            repeat=Repeat(),
            admission=ACKS,
        )
        self.router.add(
            "/v1/queue/extend",
            self.extend,
            request_model=ExtendRequest,
            response_model=ExtendAnswer,
            errors=_RESOLVE_ERRORS,
            summary="Keep the message for longer, from now on.",
            request_example={**_CLAIM_EXAMPLE, "extend_by_seconds": 30},
            response_headers=_MESSAGE_ID,
            admission=ACKS,
        )

    async def enqueue(self, request: Request, body: None) -> Answer:
        parts = plain_parts(request.body, boundary_of(request.header(b"content-type")))
        if parts is None:
            return await self.enqueue_stream(request, pieces_of(request.body))
        order = self._order(request, parts[0])
        request.operation = self._metrics.enqueue, order.address.namespace, perf_counter()
        content = await self.service.arrivals.content_of(order.address, parts[1])
        (message,) = await self.service.arrivals.enqueue([(order, content)])
        return Answer(200, enqueued_json(message) + b"\n", JSON_HEADERS)

    async def enqueue_stream(self, request: Request, pieces: AsyncIterator[bytes]) -> Answer:
        boundary = boundary_of(request.header(b"content-type"))
        order, content = await take_message(
            self.service, boundary, pieces, lambda text: self._order(request, text)
        )
        request.operation = self._metrics.enqueue, order.address.namespace, perf_counter()
        (message,) = await self.service.arrivals.enqueue([(order, content)])
        return Answer(200, enqueued_json(message) + b"\n", JSON_HEADERS)

    def _order(self, request: Request, meta: bytes) -> EnqueueOrder:
        return enqueue_order(request, meta_of(meta), self._namespace_default)

    async def dequeue(self, request: Request, body: DequeueRequest | None) -> AnyAnswer:
        order = dequeue_order(request, body, self._namespace_default, count_max=self._dequeue_count_max)
        return delivered(self.service, await self.taken(request, order))

    async def dequeue_with_state(self, request: Request, body: DequeueRequest | None) -> AnyAnswer:
        order = dequeue_order(request, body, self._namespace_default, count_max=1, with_state=True)
        return delivered(self.service, await self.taken(request, order))

    async def taken(self, request: Request, order: DequeueOrder) -> list[Delivery]:
        """The deliveries of a dequeue, or what its caller is told instead."""
        request.operation = self._metrics.dequeue, order.address.namespace, perf_counter()
        self._drain.refuse_new_work()
        try:
            if order.wait_s == 0:
                deliveries = await self.service.dequeue(order)
            else:
                deliveries = await self._waits.until_drain(self.service.dequeue(order))
        except NoMessages:
            raise _nothing(order) from None
        except Draining:
            self._drain.refuse_new_work()
            raise
        self._metrics.delivered(deliveries)
        return deliveries

    async def subscribe(self, request: Request, body: DequeueRequest | None) -> AnyAnswer:
        return await self._subscribed(request, body, with_state=False)

    async def subscribe_with_state(self, request: Request, body: DequeueRequest | None) -> AnyAnswer:
        return await self._subscribed(request, body, with_state=True)

    async def _subscribed(
        self, request: Request, body: DequeueRequest | None, *, with_state: bool
    ) -> AnyAnswer:
        order = dequeue_order(
            request, body, self._namespace_default, count_max=PREFETCH_MAX, with_state=with_state
        )
        request.operation = self._metrics.dequeue, order.address.namespace, perf_counter()
        self._drain.refuse_new_work()
        try:
            return await subscription_answer(
                self.service, self.service.subscribe(order), self._waits, self._metrics.delivered
            )
        except NoMessages:
            raise _nothing(order) from None
        except Draining:
            self._drain.refuse_new_work()
            raise

    async def ack(self, request: Request, body: AckRequest) -> Answer:
        claim = claim_of(request, body, body, self._namespace_default, needs_etag=False)
        request.operation = self._metrics.ack, claim.address.namespace, perf_counter()
        acked = await self.service.ack(claim)
        return _identified(
            {"acked": True, "correlation_id": acked.correlation_id or request.correlation_id}, request
        )

    async def nack(self, request: Request, body: NackRequest) -> Answer:
        claim = claim_of(request, body, body, self._namespace_default, needs_etag=True)
        intent = intent_of(body)
        last_error = (
            b"" if body.last_error is None else json_text(body.last_error, "last_error", LAST_ERROR_BYTES_MAX)
        )
        order = NackOrder(claim, seconds(body.delay_seconds), intent, last_error)
        request.operation = self._metrics.nack, claim.address.namespace, perf_counter()
        requeued = await self.service.nack(order)
        return _identified({"requeued": True, **requeued._asdict()}, request)

    async def extend(self, request: Request, body: ExtendRequest) -> Answer:
        claim = claim_of(request, body, body, self._namespace_default, needs_etag=True)
        order = ExtendOrder(claim, seconds(body.extend_by_seconds))
        request.operation = self._metrics.extend, claim.address.namespace, perf_counter()
        extended = await self.service.extend(order)
        answer: dict[str, object] = {
            "lease_expires_at_unix": extended.lease_expires_at_s,
            "visibility_timeout_seconds": extended.visibility_s,
            "meta_etag": extended.meta_etag,
            "state_lease_expires_at_unix": extended.state_lease_expires_at_s or None,
            "correlation_id": extended.correlation_id,
        }
        return _identified(answer, request)


def delivered(service: QueueService, deliveries: list[Delivery]) -> AnyAnswer:
    """Deliveries as an answer: whole while they are small, as a stream when they are not."""
    size_bytes = sum([delivery.body.size_bytes for delivery in deliveries])
    if size_bytes > WHOLE_BYTES_MAX or any(delivery.body.blob is not None for delivery in deliveries):
        return batch_answer(service, deliveries)
    boundary = new_boundary()
    return HandOver(
        200,
        framed(boundary, deliveries),
        headers_of(boundary, deliveries[0]),
        partial(service.give_back_soon, deliveries),
    )


def _acked_before(request: Request, status: int, body: bytes) -> Answer | None:
    """An ack whose first sending broke off, and whose second finds no message: the first one removed it."""
    if status != MessageNotFound.status or from_json(body).get("error") != MessageNotFound.code:
        return None
    return json_answer({"acked": True, "correlation_id": request.correlation_id})


def _nothing(order: DequeueOrder) -> NoMessages:
    return NoMessages(
        "no messages available", retry_after_s=1 if order.wait_s is None else order.wait_s or None
    )


def _identified(members: dict[str, object], request: Request) -> Answer:
    """An answer about a message has the message's correlation id, not the request's."""
    correlation_id = members["correlation_id"]
    headers: list[Header] = []
    if correlation_id != request.correlation_id:
        headers.append((b"x-correlation-id", str(correlation_id).encode("ascii")))
    return json_answer(members, headers=headers)
