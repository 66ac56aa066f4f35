"""Plays a flow without a network: a script of answers, a clock that moves with every pause."""

import json
import random
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.endpoint import Endpoint, parse_endpoints
from holdfast.client.wire.flow import Channel, Flow, Pause, Send
from holdfast.common.clock import FakeClock

T = TypeVar("T")


def answer(status: int = 200, headers: dict[str, str] | None = None, **members: Any) -> Answer:
    return Answer(status, headers or {}, json.dumps(members).encode() if members else b"")


@dataclass
class Player:
    """Answers every Send with the next entry of `script`; an exception there is thrown into the flow."""

    script: list[Answer | Exception]
    servers: str = "http://a:1"
    seconds_per_call: float = 0.0
    clock: FakeClock = field(default_factory=FakeClock)
    sent: list[Call] = field(default_factory=list[Call])
    asked: list[str] = field(default_factory=list[str])
    timeouts_s: list[float | None] = field(default_factory=list[float | None])
    pauses_s: list[float] = field(default_factory=list[float])
    draining: list[Endpoint] = field(default_factory=list[Endpoint])

    def __post_init__(self) -> None:
        self.channel = Channel(
            parse_endpoints(self.servers, is_mtls_on=False),
            chance=random.Random(7),
            monotonic_s=self.clock.monotonic_s,
            on_shutdown_imminent=self.draining.append,
        )

    def play(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                step = self._do(flow, step)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, flow: Flow[T], step: Send | Pause) -> Send | Pause:
        if isinstance(step, Pause):
            self.pauses_s.append(step.seconds)
            self.clock.advance(step.seconds)
            return flow.send(None)
        self.sent.append(step.call)
        self.asked.append(step.endpoint.name)
        self.timeouts_s.append(step.timeout_s)
        self.clock.advance(self.seconds_per_call)
        if step.call.body is not None:
            list(step.call.body.chunks())
        scripted = self.script.pop(0)
        return flow.throw(scripted) if isinstance(scripted, Exception) else flow.send(scripted)

    def bodies(self) -> list[dict[str, Any]]:
        """The JSON that was sent."""
        return [json.loads(call.body.data) for call in self.sent if call.body is not None and call.body.data]
