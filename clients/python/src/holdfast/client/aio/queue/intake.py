"""Makes deliveries of what arrives."""

from contextlib import suppress
from typing import Final

from holdfast.client.aio.queue.arrivals import Arrivals, Payload
from holdfast.client.aio.queue.delivery import Delivery, DeliveryState
from holdfast.client.aio.renewer import Renewer
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import ClientError, UnexpectedAnswer
from holdfast.client.queue.calls import QueueCalls
from holdfast.client.queue.delivery import DeliveryClaim, ServerClock
from holdfast.client.queue.message import Message
from holdfast.client.session.hold import Hold
from holdfast.client.wire.call import Answer

EAGER_BYTES_MAX: Final = 1024 * 1024
"""Payloads up to this size are here when their delivery is; larger ones come as they are read."""


class Intake:
    """What all deliveries of a queue have in common."""

    def __init__(
        self, transport: Transport, renewer: Renewer, calls: QueueCalls, *, close_delay_s: float = 0.0
    ) -> None:
        self._transport = transport
        self._renewer = renewer
        self._calls = calls
        self._close_delay_s = close_delay_s

    async def only(self, answer: Answer) -> Delivery:
        """The delivery of an answer that has one; its connection is free as soon as the payload is here."""
        arrivals = await Arrivals.open(answer)
        try:
            message = await arrivals.next()
            if message is None:
                raise UnexpectedAnswer("an answer without a delivery")
            delivery = await self.delivery(message, arrivals, self._clock(answer), is_only=True)
        except BaseException:
            await arrivals.close()
            raise
        if message.payload_bytes <= EAGER_BYTES_MAX:
            with suppress(ClientError):  # All that counts is here.
                await arrivals.finish()
            await arrivals.close()
        return delivery

    async def all(self, answer: Answer) -> list[Delivery]:
        """The deliveries of an answer with several, each with its payload."""
        arrivals = await Arrivals.open(answer)
        found: list[Delivery] = []
        try:
            clock = self._clock(answer)
            size_bytes = 0
            while (message := await arrivals.next()) is not None:
                size_bytes += message.payload_bytes
                if size_bytes > self._calls.options.document_bytes_max:
                    raise UnexpectedAnswer("a batch that is too large; ask for fewer messages at once")
                delivery = await self.delivery(message, arrivals, clock)
                await delivery.payload.read()
                found.append(delivery)
            await arrivals.finish()
        except ClientError:
            if not found:
                raise  # Else those that are here are worth more than the error.
        finally:
            await arrivals.close()
        return found

    async def delivery(
        self, message: Message, arrivals: Arrivals, clock: ServerClock, *, is_only: bool = False
    ) -> Delivery:
        """The delivery that came last; a small payload is read now."""
        claim = self._calls.claim(message, left_s=clock.left_s(message))
        payload = Payload(message, arrivals.payload(), bytes_max=self._calls.options.document_bytes_max)
        if message.payload_bytes <= EAGER_BYTES_MAX:
            try:
                await payload.read()
            except ClientError:
                await self.give_back(message)
                raise
        delivery = self.of(claim, payload)
        if is_only:
            delivery.hang_up = arrivals.close
        return delivery

    def of(self, claim: DeliveryClaim, payload: Payload) -> Delivery:
        return Delivery(
            self._transport,
            self._renewer,
            claim,
            payload,
            state=self._state(claim),
            close_delay_s=self._close_delay_s,
        )

    def _state(self, claim: DeliveryClaim) -> DeliveryState | None:
        lease = claim.state_lease()
        if lease is None:
            return None
        return DeliveryState(self._transport, Hold(self._calls.channel, self._calls.options, lease))

    async def give_back(self, message: Message) -> None:
        """A message that no consumer will see need not wait for the end of its visibility."""
        claim = self._calls.claim(message)
        with suppress(ClientError):
            await self._transport.run(claim.nack(delay_s=0.0, intent="defer", reason=""))

    def _clock(self, answer: Answer) -> ServerClock:
        return ServerClock(answer, self._calls.channel.monotonic_s)
