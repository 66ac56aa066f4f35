"""The way to another node: requests of this node's clients that are decided there, many over one connection.

It connects as soon as the node is announced, and again after a loss for as long as it is. While it is not connected, what is asked is
refused at once; what was under way when it was lost is refused then.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final, Protocol

from holdfast.common.backoff import Backoff
from holdfast.leases.layer.locks.records import Grant, Outcome, Pending, Refused, Session, Tell
from holdfast.leases.nodes.wire import Frame, Wire, unpacked

CONNECT_S_MAX: Final = 5.0
CALLS_MAX: Final = 100_000


GiveBack = Callable[[bytes], None]
"""Releases the slot of this token, which no client was told of."""


class Owner(Protocol):
    """What a link tells."""

    def link_is_open(self, link: "NodeLink") -> None: ...

    def link_is_lost(self, link: "NodeLink") -> None: ...

    def session_is_lost(self, link: "NodeLink", number: int) -> None: ...

    def push(self, listener: int, channel: bytes, payload: bytes) -> None: ...


class RemoteCall(Pending):
    """A request that another node decides."""

    __slots__ = ("give_back", "is_cancelled", "is_waiting", "link", "number", "tell")

    def __init__(
        self, link: "NodeLink", number: int, tell: Tell, *, is_waiting: bool, give_back: GiveBack | None
    ) -> None:
        self.link = link
        self.number = number
        self.tell = tell
        self.is_waiting = is_waiting
        """It may take as long as its client is ready to wait."""
        self.give_back = give_back
        self.is_cancelled = False
        """Its client is gone. The other node says what it came to all the same: a grant may have crossed the cancel."""

    def finish(self, outcome: Outcome) -> None:
        if not self.is_cancelled:
            self.tell(outcome)
        elif self.give_back is not None and isinstance(outcome, Grant):
            self.give_back(outcome.token)

    @property
    def waits(self) -> bool:
        """Whether it does, only the other node knows."""
        return False

    def hurry(self) -> None:
        if self.is_waiting:
            self.link.say("hurry", self.number)


class NodeLink:
    """To one node."""

    def __init__(
        self,
        name: str,
        address: str,
        key: bytes,
        beat_s: float,
        owner: Owner,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self._address = address
        self._key = key
        self._beat_s = beat_s
        self._owner = owner
        self._tls = tls
        self._end: _End | None = None
        self._numbers = count(1)
        self._calls: dict[int, RemoteCall] = {}
        self._task: asyncio.Task[None] | None = None
        self.is_connected = asyncio.Event()
        self.clients: dict[int, Session] = {}
        """Sessions that the other node knows of."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._stay_connected(), name="locks.link")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._end is not None:
            self._end.end()

    # -- calls

    def call(
        self,
        kind: str,
        *fields: Any,
        tell: Tell,
        is_waiting: bool = False,
        give_back: GiveBack | None = None,
    ) -> Outcome | Pending:
        if not self.is_connected.is_set() or self._end is None or len(self._calls) >= CALLS_MAX:
            return Refused.UNAVAILABLE
        number = next(self._numbers)
        call = self._calls[number] = RemoteCall(
            self, number, tell, is_waiting=is_waiting, give_back=give_back
        )
        self._end.send(kind, number, *fields)
        return call

    def say(self, kind: str, *fields: Any) -> None:
        """Without an answer."""
        if self._end is not None:
            self._end.send(kind, *fields)

    def cancel(self, call: RemoteCall) -> None:
        if call.number in self._calls and not call.is_cancelled:
            call.is_cancelled = True
            self.say("cancel", call.number)

    def refuse_waiting(self) -> None:
        """No call waits any more."""
        for call in [call for call in self._calls.values() if call.is_waiting and not call.is_cancelled]:
            self.cancel(call)
            call.tell(Refused.UNAVAILABLE)

    # -- the connection

    async def _stay_connected(self) -> None:
        host, _, port = self._address.rpartition(":")
        loop = asyncio.get_running_loop()
        backoff = Backoff(None)
        while True:
            is_over = asyncio.Event()
            try:
                async with asyncio.timeout(CONNECT_S_MAX):
                    _, end = await loop.create_connection(
                        lambda is_over=is_over: _End(self, self._key, self._beat_s, is_over.set),
                        host.strip("[]"),
                        int(port),
                        ssl=self._tls,
                    )
                await is_over.wait()
                if end.is_proven:
                    backoff = Backoff(None)
            except (OSError, TimeoutError):
                pass  # It is not there yet, or no longer.
            await backoff.pause()

    def opened(self, end: "_End") -> None:
        self._end = end
        self.is_connected.set()
        self._owner.link_is_open(self)

    def closed(self, end: "_End") -> None:
        if self._end is not end:
            return
        self._end = None
        self.is_connected.clear()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.finish(Refused.UNAVAILABLE)
        self._owner.link_is_lost(self)

    def received(self, frame: Frame) -> None:
        kind, *fields = frame
        if kind == "outcome":
            number, outcome = fields
            call = self._calls.pop(number, None)
            if call is not None:
                call.finish(unpacked(outcome))
        elif kind == "push":
            self._owner.push(*fields)
        elif kind == "lost":
            self._owner.session_is_lost(self, *fields)
        else:
            raise ValueError


class _End(Wire):
    """The connecting end."""

    def __init__(self, link: NodeLink, key: bytes, beat_s: float, is_over: Callable[[], None]) -> None:
        super().__init__(key, beat_s, accepts=False)
        self._link = link
        self._is_over = is_over

    def proven(self) -> None:
        self._link.opened(self)

    def lost(self) -> None:
        self._link.closed(self)
        self._is_over()

    def received(self, frame: Frame) -> None:
        self._link.received(frame)
