"""Signals over HTTP: sent by a call, heard as server-sent events."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from pydantic_core import to_json

from holdfast.common.errors import Draining, InvalidBody
from holdfast.common.express.message import Answer, Header, Request, StreamAnswer, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Admission, Begins, Duration, Group
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain, Waits
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.protocol.locks.errors import InvalidSignal, LockUnavailable
from holdfast.leases.protocol.locks.names import channel_of, group_of, pattern_of, payload_of, spelled
from holdfast.leases.protocol.locks.places import outcome_of
from holdfast.leases.protocol.locks.schemas import SignalAnswer, SignalRequest

HEARTBEAT_S: Final = 15.0
PUSHES_MAX: Final = 64
"""Signals that wait for a client that reads slowly; more are dropped, and not counted as delivered."""
_EVENTS: Final[list[Header]] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class SignalRoutes:
    """`service` is set while the process serves."""

    service: LockService

    def __init__(self, drain: Drain, waits: Waits) -> None:
        self._drain = drain
        self._waits = waits
        self.router = ExpressRouter(tags=("signals",), service=Role.LEASES)
        self.router.add(
            "/v1/signals",
            self.send,
            request_model=SignalRequest,
            response_model=SignalAnswer,
            errors=(InvalidSignal, LockUnavailable),
            summary="Send a signal to those who listen at this moment; nothing is kept for others.",
            request_example={"channel": "orders.new", "payload": "4711"},
            body_limit_error=InvalidBody,
            admission=Admission(Group.LOCK, Begins.ALWAYS),
        )
        self.router.add(
            "/v1/signals",
            self.listen,
            methods=("GET",),
            response_content={"text/event-stream": {"type": "string"}},
            errors=(InvalidSignal,),
            summary="Signals as server-sent events, from now on.",
            query_parameters={
                "pattern": "Channels: tokens with dots between them; * stands for one token, > at the end for the rest.",
                "group": "Of the listeners of a pattern with the same group, one gets each signal.",
            },
            duration=Duration.ENDLESS,
        )

    async def send(self, request: Request, body: SignalRequest) -> Answer:
        channel = channel_of(body.channel)
        payload = payload_of(body.payload, body.payload_base64)
        outcome = await outcome_of(lambda tell: self.service.signal(channel, payload, tell))
        if not isinstance(outcome, int):
            raise LockUnavailable("signals cannot be sent now; try again", retry_after_s=1)
        return json_answer({"delivered": outcome})

    async def listen(self, request: Request, body: None) -> StreamAnswer:
        """A comment comes at once, when the listener is there, and every 15 seconds. Signals above 64 that the client has not read are dropped."""
        pattern, group = pattern_of(request), group_of(request)
        self._drain.refuse_new_work()
        client = request.client
        address = "" if client is None else f"{client[0]}:{client[1]}"
        return StreamAnswer(200, _EVENTS, None, self._events(pattern, group, address), is_endless=True)

    async def _events(self, pattern: bytes, group: bytes, address: str) -> AsyncGenerator[bytes, None]:
        inbox = Inbox(address)
        try:
            if await outcome_of(lambda tell: self.service.listen(inbox, pattern, group, tell)) is not True:
                return  # The subscriptions are gone: a client that is told so by the end opens another stream.
            yield b": listening\n\n"
            while True:
                try:
                    await self._waits.until_drain(inbox.wait(HEARTBEAT_S))
                except Draining:
                    return
                yield inbox.take() or b": alive\n\n"
        finally:
            self.service.leave(inbox)


class Inbox:
    """A listener that takes signals in until its client reads them."""

    def __init__(self, address: str = "") -> None:
        self.address = address
        self._events: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._number = 0

    def push(self, channel: bytes, payload: bytes) -> bool:
        if len(self._events) >= PUSHES_MAX:
            return False
        self._number += 1
        self._events.append(_event(self._number, channel, payload))
        self._arrived.set()
        return True

    async def wait(self, seconds: float) -> None:
        """Until there is something, no longer than that."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return

    def take(self) -> bytes:
        """All that is there."""
        self._arrived.clear()
        taken = b"".join(self._events)
        self._events.clear()
        return taken


def _event(number: int, channel: bytes, payload: bytes) -> bytes:
    members = {**spelled("channel", channel), **spelled("payload", payload)}
    return b"id: %d\nevent: signal\ndata: %b\n\n" % (number, to_json(members))
