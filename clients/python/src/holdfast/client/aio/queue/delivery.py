"""A message in hand: its payload, its state, and what becomes of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.client.aio.concurrency import Event, Lock
from holdfast.client.aio.queue.arrivals import Payload
from holdfast.client.aio.renewer import Renewer
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import ClientError, InvalidArgument, LeaseLost, NotFound
from holdfast.client.queue.delivery import DeliveryClaim, reason_of
from holdfast.client.queue.message import Intent, Message
from holdfast.client.session.document import State, WriteResult
from holdfast.client.session.hold import Hold
from holdfast.client.session.renewal import Renewal
from holdfast.client.wire import request
from holdfast.client.wire.body import AsyncSource
from holdfast.client.wire.flow import Flow

T = TypeVar("T")


async def _nothing() -> None:
    """Nothing is open."""


class DeliveryState:
    """What a worker notes about a message, for itself or for the next consumer.

    Each write insists on what was read or written last. A nack keeps what was written, an ack drops it.
    """

    def __init__(self, transport: Transport, hold: Hold) -> None:
        self._transport = transport
        self._hold = hold

    async def get(self) -> State | None:
        with self._hold.in_use():
            return await self._transport.run(self._hold.get())

    async def load(self, default: Any = None) -> Any:
        """The decoded state, or `default` if nothing was written yet."""
        state = await self.get()
        return default if state is None else state.json()

    async def update(self, document: AsyncSource) -> WriteResult:
        """Write JSON as bytes, text, file or stream."""
        with self._hold.in_use():
            return await self._transport.run(self._hold.update(document, self._hold.conditions()))

    async def save(self, value: Any) -> WriteResult:
        """Write a value as JSON."""
        return await self.update(request.json_bytes(value))


class Delivery:
    """As a context manager it acks at the end of its block, and nacks with the reason when the block raises.

    In the block it is extended at half of its visibility time. `lost` is set when the message is no longer ours:
    what is done after that may be done by another consumer as well.
    """

    def __init__(
        self,
        transport: Transport,
        renewer: Renewer,
        claim: DeliveryClaim,
        payload: Payload,
        *,
        state: DeliveryState | None = None,
        close_delay_s: float = 0.0,
    ) -> None:
        self.lost = Event()
        self.payload = payload
        self.hang_up: Callable[[], Awaitable[None]] = _nothing
        """Called when nothing more of the payload will be read."""
        self._transport = transport
        self._claim = claim
        self._state = state
        self._close_delay_s = close_delay_s
        self._renewer = renewer
        self._renewal: Renewal | None = None
        self._guard = Lock()
        claim.on_end = self._on_end

    @property
    def claim(self) -> DeliveryClaim:
        """What proves to the server that the message is ours."""
        return self._claim

    @property
    def message(self) -> Message:
        """The message as it was delivered."""
        return self._claim.message

    @property
    def message_id(self) -> str:
        return self._claim.message.message_id

    @property
    def correlation_id(self) -> str:
        """Pass it on to every call made because of this message."""
        return self._claim.message.correlation_id

    @property
    def meta_etag(self) -> str:
        """Changes with every extend."""
        return self._claim.meta_etag

    @property
    def lease_expires_at_unix(self) -> int:
        return self._claim.lease_expires_at_unix

    @property
    def visibility_s(self) -> float:
        """How long it is ours from each extend on."""
        return self._claim.visibility_s

    @property
    def is_resolved(self) -> bool:
        """Acked or nacked."""
        return self._claim.is_resolved

    @property
    def lost_because(self) -> LeaseLost | None:
        """Why `lost` is set."""
        return self._claim.lost_because

    @property
    def state(self) -> DeliveryState:
        """The state of this message, if it was taken with it."""
        if self._state is None:
            raise InvalidArgument("taken without state: use dequeue_with_state or with_state=True")
        return self._state

    async def __aenter__(self) -> Self:
        self._keep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._leave(error)
        finally:
            await self.hang_up()

    async def _leave(self, error: BaseException | None) -> None:
        if error is None:
            if not self.is_resolved:
                await self.ack()
            return
        await self.fail(error)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Extend in the background while the block runs, and leave the rest to the caller."""
        self._keep()
        try:
            yield
        finally:
            async with self._guard:  # An extend that is cut off would take the ETag with it.
                self._stop_renewal()

    async def ack(self) -> None:
        """Done: the message is gone for good. Raises LeaseLost or NotFound if it was no longer ours."""
        await self._resolve(self._claim.ack())

    async def nack(self, *, delay_s: float = 0.0, intent: Intent = "failure", reason: str = "") -> None:
        """Give it back, to be delivered again after `delay_s`. `defer` does not count as a failed attempt."""
        await self._resolve(self._claim.nack(delay_s=delay_s, intent=intent, reason=reason))

    async def extend(self, seconds: float | None = None) -> int:
        """Keep it for so many seconds from now, by default its visibility time; gives the end in Unix seconds."""
        async with self._guard:
            self._claim.check_live()
            return await self._run(self._claim.extend(seconds))

    async def close(self) -> None:
        """Give it back unless it is resolved or lost."""
        if not self._claim.is_ended:
            await self.nack(delay_s=self._close_delay_s)

    async def fail(self, error: BaseException) -> None:
        """Give it back because of this error, unless it is resolved or lost; never raises."""
        if self._claim.is_ended:
            return
        try:
            if isinstance(error, Exception):
                await self.nack(delay_s=self._close_delay_s, reason=reason_of(error))
            else:
                await self.nack(intent="defer")  # Interrupted: not the fault of the message.
        except ClientError as problem:
            error.add_note(f"holdfast: the message was not given back and will come again: {problem}")

    async def _resolve(self, flow: Flow[None]) -> None:
        async with self._guard:  # An extend under way would change the ETag.
            self._claim.check_live()
            self._stop_renewal()
            await self._run(flow)
            self._claim.resolve()
        await self.hang_up()

    async def _run(self, flow: Flow[T]) -> T:
        try:
            return await self._transport.run(flow)
        except (LeaseLost, NotFound) as problem:
            self._claim.lose(self._claim.verdict(problem) or LeaseLost(problem.code, problem.detail))
            raise

    def _keep(self) -> None:
        if self._renewal is None and not self._claim.is_ended:
            self._renewal = self._renewer.add(self._claim, self._guard)

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewer.discard(self._renewal)
            self._renewal = None

    def _on_end(self) -> None:
        self._stop_renewal()
        if self._claim.lost_because is not None:
            self.lost.set()
