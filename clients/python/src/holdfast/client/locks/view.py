"""What the server tells about locks and signals, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.errors import UnexpectedAnswer
from holdfast.client.wire.call import Members

_EVENT_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A slot that is held. Its token is its holder's alone."""

    owner: str
    address: str
    fencing_token: int
    ttl_s: int
    age_s: float
    lease_expires_in_s: float

    @classmethod
    def read(cls, members: Members) -> "LockHolder":
        return cls(
            owner=members.text("owner"),
            address=members.text("address"),
            fencing_token=members.number("fencing_token"),
            ttl_s=members.number("ttl_seconds"),
            age_s=_seconds(members, "age_seconds"),
            lease_expires_in_s=_seconds(members, "lease_expires_in_seconds"),
        )


@dataclass(frozen=True, slots=True)
class LockWaiter:
    """A place in the queue."""

    owner: str
    address: str
    age_s: float

    @classmethod
    def read(cls, members: Members) -> "LockWaiter":
        return cls(members.text("owner"), members.text("address"), _seconds(members, "age_seconds"))


@dataclass(frozen=True, slots=True)
class LockView:
    """A key, as the server knows it. The numbers are exact; of many holders and waiters only the first ones are there."""

    key: str
    limit: int
    held: int
    waiting: int
    holders: tuple[LockHolder, ...]
    waiters: tuple[LockWaiter, ...]
    idle_s: float
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "LockView":
        return cls(
            key=members.text("key"),
            limit=members.number("limit"),
            held=members.number("held"),
            waiting=members.number("waiting"),
            holders=tuple(LockHolder.read(one) for one in members.items("holders")),
            waiters=tuple(LockWaiter.read(one) for one in members.items("waiters")),
            idle_s=_seconds(members, "idle_seconds"),
            raw=members.raw,
        )


@dataclass(frozen=True, slots=True)
class ChannelListener:
    """A connection that takes signals."""

    address: str
    age_s: float


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel or a pattern that is listened to. The number is exact; of many listeners only the first ones are there."""

    pattern: str
    group: str
    listeners: int
    listening: tuple[ChannelListener, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "ChannelView":
        return cls(
            pattern=members.text("pattern"),
            group=members.text("group"),
            listeners=members.number("listeners"),
            listening=tuple(
                ChannelListener(one.text("address"), _seconds(one, "age_seconds"))
                for one in members.items("listening")
            ),
            raw=members.raw,
        )


@dataclass(frozen=True, slots=True)
class Signal:
    """What was sent to a channel."""

    channel: str
    payload: str


class SignalReader:
    """Feed it with bytes as they come, and take signals out; comments and other events are passed over."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Signal]:
        self._buffer += data
        signals: list[Signal] = []
        while (end := self._buffer.find(b"\n\n")) >= 0:
            block = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            signal = _signal_of(block)
            if signal is not None:
                signals.append(signal)
        if len(self._buffer) > _EVENT_BYTES_MAX:
            raise UnexpectedAnswer("an event stream with an event that is too large")
        return signals


def _signal_of(block: bytes) -> Signal | None:
    parts = [line.partition(b": ") for line in block.split(b"\n")]
    lines = {name: value for name, _, value in parts}
    if lines.get(b"event") != b"signal":
        return None
    try:
        decoded = json.loads(lines.get(b"data", b""))
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer("an event whose data is no JSON") from error
    if not isinstance(decoded, dict):
        raise UnexpectedAnswer("an event whose data is no JSON object")
    members = Members(decoded)
    return Signal(members.text("channel"), members.text("payload"))


def _seconds(members: Members, name: str) -> float:
    value = members.raw.get(name, 0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
