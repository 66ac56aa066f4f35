"""A queue: its calls as flows, shared by both twins."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.client.errors import ApiError, InvalidArgument, QueueEmpty
from holdfast.client.options import ClientOptions
from holdfast.client.queue import request
from holdfast.client.queue.delivery import DeliveryClaim
from holdfast.client.queue.message import Enqueued, Message, Outgoing
from holdfast.client.queue.opening import Opening, queue_error
from holdfast.client.queue.view import QueuePolicy, QueueStats, StoredMessage
from holdfast.client.session.lease import whole_seconds
from holdfast.client.wire.call import Answer, Call, Members
from holdfast.client.wire.flow import Channel, Flow
from holdfast.client.wire.patience import block_seconds, patiently
from holdfast.client.wire.retry import RETRIES_DEFAULT
from holdfast.common.ids import uuid7


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """How messages are taken. `block_s`: None waits for ever, 0 not at all."""

    owner: str
    visibility_s: float | None = None
    block_s: float | None = None
    count_max: int = 1
    txn_id: str = ""
    with_state: bool = False
    retries: int | None = RETRIES_DEFAULT

    def __post_init__(self) -> None:
        if self.block_s is not None and self.block_s < 0:
            raise InvalidArgument("block_s is negative; 0 does not wait, None waits for ever")
        if self.visibility_s is not None and self.visibility_s <= 0:
            raise InvalidArgument("visibility_s must be more than 0; None takes the server's default")
        if self.count_max < 1:
            raise InvalidArgument("at least one message must be asked for")


class QueueCalls:
    """The part of a queue that both twins share. It does no I/O."""

    def __init__(self, channel: Channel, options: ClientOptions, namespace: str, name: str) -> None:
        if not name.strip():
            raise InvalidArgument("a queue has a name")
        self.namespace = namespace
        self.name = name
        self.options = options
        self.channel = channel

    def correlation_id(self) -> str:
        return self.options.correlation_id or uuid7()

    # In

    def enqueue(self, message: Outgoing, correlation_id: str, *, txn_id: str = "") -> Flow[Enqueued]:
        correlation_id = correlation_id or self.correlation_id()
        call = request.enqueue(self.namespace, self.name, message, correlation_id, txn_id=txn_id)
        answer = yield from self.channel.send(call)
        return Enqueued.read(answer.expect(200).members())

    # Out

    def dequeue(self, taking: Taking) -> Flow[Answer]:
        """The open answer with the deliveries; QueueEmpty when none came in time."""

        def call_for(wait_seconds: int) -> Call:
            return request.dequeue(
                namespace=self.namespace,
                queue=self.name,
                owner=taking.owner,
                visibility_s=taking.visibility_s,
                wait_seconds=wait_seconds,
                page_size=taking.count_max,
                txn_id=taking.txn_id,
                with_state=taking.with_state,
                correlation_id=self.correlation_id(),
                timeout_s=self.channel.timeout_s,
            )

        retries = RETRIES_DEFAULT if taking.retries is None else taking.retries
        try:
            answer = yield from patiently(
                self.channel, call_for, block_s=taking.block_s, retries=retries, may_pass=_may_pass
            )
        except ApiError as problem:
            if problem.code == "waiting":
                raise queue_error(problem) from None
            raise
        return answer.expect(200)

    def dequeue_or_none(self, taking: Taking) -> Flow[Answer | None]:
        try:
            return (yield from self.dequeue(taking))
        except QueueEmpty:
            return None

    def subscribe(self, taking: Taking, prepare: Callable[[Call], None]) -> Opening:
        """`prepare` may add to each call before it is sent."""

        def call_for() -> Call:
            call = request.subscribe(
                namespace=self.namespace,
                queue=self.name,
                owner=taking.owner,
                visibility_s=taking.visibility_s,
                wait_seconds=block_seconds(taking.block_s),
                prefetch=taking.count_max,
                with_state=taking.with_state,
                correlation_id=self.correlation_id(),
            )
            prepare(call)
            return call

        return Opening(self.channel, call_for, retries=taking.retries)

    def claim(self, message: Message, *, left_s: float | None = None) -> DeliveryClaim:
        return DeliveryClaim(self.channel, self.options, message, left_s=left_s)

    # Looking

    def stats(self) -> Flow[QueueStats]:
        return QueueStats.read((yield from self.about("stats")))

    def peek(self, limit: int, *, payloads: bool) -> Flow[list[StoredMessage]]:
        members = yield from self.about("peek", limit=limit, payloads=payloads)
        return [StoredMessage.read(item) for item in members.items("messages")]

    def policy(
        self,
        *,
        visibility_s: float | None = None,
        max_attempts: int | None = None,
        ttl_s: float | None = None,
        deliveries_per_s: float | None = None,
        is_paused: bool | None = None,
    ) -> Flow[QueuePolicy]:
        """What is given is set, the rest stays."""
        members = yield from self.about(
            "policy",
            visibility_timeout_seconds=None if visibility_s is None else whole_seconds(visibility_s),
            max_attempts=max_attempts,
            ttl_seconds=None if ttl_s is None else whole_seconds(ttl_s),
            deliveries_per_second=None if deliveries_per_s is None else float(deliveries_per_s),
            paused=is_paused,
        )
        return QueuePolicy.read(members)

    def pause(self, *, is_paused: bool) -> Flow[QueuePolicy]:
        return QueuePolicy.read((yield from self.about("pause" if is_paused else "resume")))

    def about(self, operation: str, *, is_idempotent: bool = True, **members: object) -> Flow[Members]:
        """The answer to a question about this queue, or to an order to it."""
        call = request.about(
            operation,
            self.namespace,
            self.name,
            self.correlation_id(),
            is_idempotent=is_idempotent,
            **members,
        )
        answer = yield from self.channel.send(call)
        return answer.expect(200).members()

    def watch(self, prepare: Callable[[Call], None]) -> Opening:
        def call_for() -> Call:
            call = request.watch(self.namespace, self.name, self.correlation_id())
            prepare(call)
            return call

        return Opening(self.channel, call_for, retries=None)


def _may_pass(problem: ApiError) -> bool:
    """Whether the same request may succeed later."""
    return problem.code == "waiting" or problem.status == 429 or problem.status >= 500
