"""HTTP in, service call, HTTP out: many messages in one call, which the original does not have."""

from collections.abc import AsyncIterator
from time import perf_counter

from pydantic_core import from_json

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import JSON_HEADERS, Answer, AnyAnswer, Request, json_answer
from holdfast.common.express.traits import Duration
from holdfast.common.express.undo import Repeat
from holdfast.common.fields import InvalidNamespace
from holdfast.common.settings import PlaneSettings
from holdfast.queue.layer.errors import BatchTooLarge, MessageNotFound
from holdfast.queue.layer.message.types import BATCH_MAX, Acked, EnqueueOrder, LeaseClaim
from holdfast.queue.layer.service import QueueService
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.protocol.lockd.fields import (
    InvalidQueueKey,
    MissingFields,
    claim_of,
    dequeue_order,
    enqueue_order,
    enqueued_json,
    meta_of,
)
from holdfast.queue.protocol.lockd.messages import (
    ACKS,
    CONSUMER_ERRORS,
    CONSUMER_QUERY,
    CONSUMES,
    ENQUEUE_ERRORS,
    ENQUEUE_HEADERS,
    ENQUEUE_QUERY,
    PRODUCES,
    UNBOUNDED,
    MessageRoutes,
    delivered,
    queue_router,
)
from holdfast.queue.protocol.lockd.multipart.intake import take_batch
from holdfast.queue.protocol.lockd.multipart.reader import boundary_of
from holdfast.queue.protocol.lockd.schemas import (
    BATCH_CONTENT,
    DELIVERY_CONTENT,
    AckBatchAnswer,
    AckBatchRequest,
    DequeueRequest,
    EnqueueBatchAnswer,
    Resolution,
)
from holdfast.queue.protocol.withdrawal import UNDO_DELIVERY
from holdfast.storage.intake import pieces_of

Result = dict[str, object]


class BatchRoutes:
    """Batches. `service` is set while the store is open."""

    service: QueueService

    def __init__(self, settings: PlaneSettings, single: MessageRoutes, metrics: QueueMetrics) -> None:
        self._metrics = metrics
        self._namespace_default = settings.namespace_default
        self._single = single
        self.router = queue_router()
        self._declare()

    def _declare(self) -> None:
        self.router.add(
            "/v1/queue/enqueueBatch",
            self.enqueue,
            stream_handler=self.enqueue_stream,
            request_content=BATCH_CONTENT,
            response_model=EnqueueBatchAnswer,
            errors=(*ENQUEUE_ERRORS, BatchTooLarge),
            summary="Put many messages into queues in one commit: multipart, `meta` and `payload` in turn.",
            query_parameters=ENQUEUE_QUERY,
            request_headers=ENQUEUE_HEADERS,
            body_limit_bytes=UNBOUNDED,
            admission=PRODUCES,
        )
        self.router.add(
            "/v1/queue/dequeueBatch",
            self.dequeue,
            request_model=DequeueRequest,
            response_content=DELIVERY_CONTENT,
            errors=CONSUMER_ERRORS,
            summary="Take up to `page_size` messages that are ready, waiting for the first if asked to.",
            request_example={"queue": "orders", "owner": "worker-1", "wait_seconds": 10, "page_size": 100},
            query_parameters=CONSUMER_QUERY,
            is_body_optional=True,
            undo=UNDO_DELIVERY,
            admission=CONSUMES,
            duration=Duration.WAITING,
        )
        self.router.add(
            "/v1/queue/ackBatch",
            self.ack,
            request_model=AckBatchRequest,
            response_model=AckBatchAnswer,
            errors=(MissingFields, InvalidQueueKey, InvalidNamespace, BatchTooLarge),
            summary="Remove many messages; each result stands for itself.",
            request_example={"queue": "orders", "messages": [{"message_id": "…", "lease_id": "…"}]},
            repeat=Repeat(_acked_before),
            admission=ACKS,
        )

    async def enqueue(self, request: Request, body: None) -> Answer:
        return await self.enqueue_stream(request, pieces_of(request.body))

    async def enqueue_stream(self, request: Request, pieces: AsyncIterator[bytes]) -> Answer:
        boundary = boundary_of(request.header(b"content-type"))

        def order_of(text: bytes) -> EnqueueOrder:
            return enqueue_order(request, meta_of(text), self._namespace_default)

        arrivals = await take_batch(self.service, boundary, pieces, order_of)
        request.operation = self._metrics.enqueue, arrivals[0][0].address.namespace, perf_counter()
        messages = await self.service.arrivals.enqueue(arrivals)
        told = b",".join([enqueued_json(message) for message in messages])
        text = b'{"messages":[%b],"correlation_id":%b}\n'
        correlation_id = json_answer(request.correlation_id).body.strip()
        return Answer(200, text % (told, correlation_id), JSON_HEADERS)

    async def dequeue(self, request: Request, body: DequeueRequest | None) -> AnyAnswer:
        order = dequeue_order(request, body, self._namespace_default, count_max=BATCH_MAX)
        return delivered(self.service, await self._single.taken(request, order))

    async def ack(self, request: Request, body: AckBatchRequest) -> Answer:
        resolved = body.messages or []
        if not resolved:
            raise MissingFields("queue, messages are required")
        if len(resolved) > BATCH_MAX:
            raise BatchTooLarge(f"a batch has at most {BATCH_MAX} messages")
        found = [self._claim(request, body, one) for one in resolved]
        claims = [claim for claim in found if isinstance(claim, LeaseClaim)]
        namespace = claims[0].address.namespace if claims else self._namespace_default
        request.operation = self._metrics.ack, namespace, perf_counter()
        outcomes = iter(await self.service.ack_many(claims))
        results = [
            _result(one, next(outcomes) if isinstance(claim, LeaseClaim) else claim)
            for one, claim in zip(resolved, found, strict=True)
        ]
        acked = sum(1 for result in results if result["acked"])
        return json_answer({"acked": acked, "results": results, "correlation_id": request.correlation_id})

    def _claim(
        self, request: Request, body: AckBatchRequest, one: Resolution
    ) -> LeaseClaim | MessageNotFound:
        try:
            return claim_of(request, body, one, self._namespace_default, needs_etag=False)
        except MessageNotFound as error:
            return error


def _acked_before(request: Request, status: int, body: bytes) -> Answer | None:
    """Of a batch that was sent twice: what the second sending did not find, the first one removed."""
    if status != 200:
        return None
    told = from_json(body)
    results: list[Result] = [
        {"message_id": one["message_id"], "acked": True} if one.get("error") == MessageNotFound.code else one
        for one in told["results"]
    ]
    acked = sum(1 for result in results if result["acked"])
    return json_answer({**told, "acked": acked, "results": results})


def _result(one: Resolution, outcome: Acked | Exception) -> Result:
    if isinstance(outcome, Acked):
        return {"message_id": one.message_id, "acked": True}
    if not isinstance(outcome, HoldfastError):
        raise outcome
    return {"message_id": one.message_id, "acked": False, "error": outcome.code, "detail": outcome.detail}
