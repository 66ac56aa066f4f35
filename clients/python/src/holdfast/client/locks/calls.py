"""Locks and signals: their calls as flows, shared by both twins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.client.errors import ApiError, InvalidArgument, NotFound
from holdfast.client.locks import request
from holdfast.client.locks.claim import LockClaim
from holdfast.client.locks.view import ChannelView, LockView
from holdfast.client.options import ClientOptions
from holdfast.client.queue.opening import Opening
from holdfast.client.wire.call import Call, Members
from holdfast.client.wire.flow import Channel, Flow
from holdfast.client.wire.patience import patiently
from holdfast.client.wire.retry import RETRIES_DEFAULT
from holdfast.common.ids import uuid7

WAIT_S_DEFAULT: Final = 10.0
PAGE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLock:
    """What is asked for. `wait_s`: None waits for ever, 0 not at all."""

    key: str
    limit: int = 1
    ttl_s: float = 30.0
    wait_s: float | None = WAIT_S_DEFAULT
    owner: str = ""

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise InvalidArgument("a semaphore has at least one slot")
        if self.ttl_s <= 0:
            raise InvalidArgument("ttl_s must be more than 0")
        if self.wait_s is not None and self.wait_s < 0:
            raise InvalidArgument("wait_s is negative; 0 does not wait, None waits for ever")


@dataclass(frozen=True, slots=True)
class LockPage:
    """Some of the keys; `cursor` is empty at the end."""

    locks: tuple[LockView, ...]
    cursor: str


class LockCalls:
    """It does no I/O."""

    def __init__(self, channel: Channel, options: ClientOptions) -> None:
        self.channel = channel
        self.options = options

    def correlation_id(self) -> str:
        return self.options.correlation_id or uuid7()

    def acquire(self, wanted: WantedLock) -> Flow[LockClaim]:
        """LeaseHeld when there is no slot in time. A server that is busy or away is asked again as long as that time lasts."""
        correlation_id = self.correlation_id()

        def call_for(block_seconds: int) -> Call:
            return request.acquire(
                key=wanted.key,
                limit=wanted.limit,
                ttl_s=wanted.ttl_s,
                owner=wanted.owner or self.options.owner_or_default(),
                block_seconds=block_seconds,
                correlation_id=correlation_id,
                timeout_s=self.channel.timeout_s,
            )

        answer = yield from patiently(
            self.channel, call_for, block_s=wanted.wait_s, retries=RETRIES_DEFAULT, may_pass=_may_pass
        )
        return LockClaim(self.channel, self.options, answer, correlation_id)

    def describe(self, key: str) -> Flow[LockView | None]:
        """None if the key was not used lately."""
        answer = yield from self.channel.send(request.describe(key, self.correlation_id()))
        try:
            return LockView.read(answer.expect(200).members())
        except NotFound:
            return None

    def page(self, prefix: str, cursor: str, limit: int) -> Flow[LockPage]:
        call = request.listing(
            prefix=prefix, limit=limit, cursor=cursor, correlation_id=self.correlation_id()
        )
        members = (yield from self.channel.send(call)).expect(200).members()
        return LockPage(tuple(LockView.read(one) for one in members.items("locks")), members.text("cursor"))

    def channels(self, prefix: str, limit: int) -> Flow[tuple[ChannelView, ...]]:
        call = request.channels(prefix=prefix, limit=limit, correlation_id=self.correlation_id())
        members = (yield from self.channel.send(call)).expect(200).members()
        return tuple(ChannelView.read(one) for one in members.items("channels"))

    def release(self, key: str, token: str) -> Flow[None]:
        call = request.release(key=key, token=token, correlation_id=self.correlation_id())
        (yield from self.channel.send(call)).expect(200)

    def force(self, view: LockView) -> Flow[int]:
        """Free the slots that were seen, and none that was granted later; how many were still held."""
        if not view.holders:
            return 0
        last = max(holder.fencing_token for holder in view.holders)
        call = request.force(
            key=view.key,
            key_base64=Members(view.raw).text("key_base64"),
            fencing_token=last,
            correlation_id=self.correlation_id(),
        )
        answer = yield from self.channel.send(call)
        return answer.expect(200).members().number("released")

    def signal(self, channel: str, payload: str) -> Flow[int]:
        answer = yield from self.channel.send(request.signal(channel, payload, self.correlation_id()))
        return answer.expect(200).members().number("delivered")

    def listen(self, pattern: str, group: str, prepare: Callable[[Call], None]) -> Opening:
        def call_for() -> Call:
            call = request.listen(pattern, group, self.correlation_id())
            prepare(call)
            return call

        return Opening(self.channel, call_for, retries=None)


def _may_pass(problem: ApiError) -> bool:
    return problem.status == 429 or problem.status >= 500
