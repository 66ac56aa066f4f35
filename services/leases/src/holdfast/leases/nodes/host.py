"""What this node does for the clients of another one: their sessions and listeners, for as long as that node is connected."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.leases.layer.locks.records import Outcome, Pending, Refused, Session, Tell
from holdfast.leases.layer.locks.signals import InvalidPattern
from holdfast.leases.nodes.wire import Frame, Wire, packed

if TYPE_CHECKING:
    from holdfast.leases.nodes.service import NodeLockService

PUSHES_BYTES_MAX: Final = 8 << 20
"""Signals that wait for a node that reads slowly; more are dropped."""


class HostedListener:
    """A connection at the other node that takes signals."""

    def __init__(self, host: "Host", number: int) -> None:
        self._host = host
        self._number = number
        self.is_full = False
        """The other node says so: what it has no room for would be counted and dropped."""

    def push(self, channel: bytes, payload: bytes) -> bool:
        if self.is_full or not self._host.is_open or self._host.unsent_bytes > PUSHES_BYTES_MAX:
            return False
        self._host.send("push", self._number, channel, payload)
        return True


class Host(Wire):
    """The accepting end. What is not at home here is refused: the other node sees the nodes otherwise for a moment."""

    def __init__(self, service: "NodeLockService", key: bytes, beat_s: float) -> None:
        super().__init__(key, beat_s, accepts=True)
        self._service = service
        self._local = service.local
        self._sessions: dict[int, Session] = {}
        self._listeners: dict[int, HostedListener] = {}
        self._pending: dict[int, Pending] = {}

    def proven(self) -> None:
        self._service.hosts.add(self)

    def lost(self) -> None:
        self._service.hosts.discard(self)
        for session in self._sessions.values():
            session.on_lost = None
            self._service.end_hosted(session)
        for listener in self._listeners.values():
            self._local.leave(listener)

    def received(self, frame: Frame) -> None:
        kind, *fields = frame
        _HANDLERS[kind](self, *fields)

    def _answer(self, number: int, key: bytes | None, ask: Callable[[Tell], Outcome | Pending]) -> None:
        """Ask, and send the outcome now or later. `key` is what must be at home here."""
        if key is not None and not self._service.decides(key):
            self._tell(number, Refused.UNAVAILABLE)
            return
        found = ask(lambda outcome: self._tell(number, outcome))
        if isinstance(found, Pending):
            self._pending[number] = found
        else:
            self._tell(number, found)

    def _tell(self, number: int, outcome: Outcome) -> None:
        self._pending.pop(number, None)
        if not self.send("outcome", number, packed(outcome)):
            self.send("outcome", number, packed(Refused.UNAVAILABLE))

    def _session(self, number: int, address: str) -> Session:
        session = self._sessions.get(number)
        if session is None:
            session = self._sessions[number] = self._local.begin_session(address)
            session.on_lost = partial(self._say_lost, number)
        return session

    def _say_lost(self, number: int) -> None:
        self.send("lost", number)

    # -- what the other node asks

    def _acquire(
        self, number: int, client: int, address: str, key: bytes, limit: int, ttl_s: int, timeout_s: float
    ) -> None:
        session = self._session(client, address)
        self._answer(
            number, key, lambda tell: self._local.acquire(session, key, limit, ttl_s, timeout_s, tell)
        )

    def _enqueue(self, number: int, client: int, address: str, key: bytes, limit: int, ttl_s: int) -> None:
        session = self._session(client, address)
        self._answer(number, key, lambda tell: self._local.enqueue(session, key, limit, ttl_s, tell))

    def _wait(self, number: int, client: int, address: str, key: bytes, timeout_s: float) -> None:
        session = self._session(client, address)
        self._answer(number, key, lambda tell: self._local.wait(session, key, timeout_s, tell))

    def _release(self, number: int, client: int, address: str, key: bytes, token: bytes) -> None:
        session = self._session(client, address)
        self._answer(number, key, lambda tell: self._local.release(session, key, token, tell))

    def _renew(self, number: int, client: int, address: str, key: bytes, token: bytes, ttl_s: int) -> None:
        session = self._session(client, address)
        self._answer(number, key, lambda tell: self._local.renew(session, key, token, ttl_s, tell))

    def _cancel(self, number: int) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            self._service.cancel(pending)
            self._tell(
                number, Refused.UNAVAILABLE
            )  # The other node keeps the call until its outcome is there.

    def _hurry(self, number: int) -> None:
        """The client has ended its own side: it takes an outcome that is coming, but waits for nothing."""
        pending = self._pending.get(number)
        if pending is None:
            return
        if pending.waits:
            self._service.cancel(pending)
            self._tell(number, Refused.TIMEOUT)
        else:
            pending.hurry()

    def _redeem(self, number: int, ticket: str, key: bytes, timeout_s: float) -> None:
        self._answer(number, None, lambda tell: self._service.on_ticket(ticket, key, timeout_s, tell))

    def _end(self, client: int, keeps_leases: bool) -> None:
        session = self._sessions.pop(client, None)
        if session is not None:
            session.on_lost = None
            self._service.end_local(session, keeps_leases=keeps_leases)

    def _listen(self, number: int, listener: int, pattern: bytes, group: bytes) -> None:
        hosted = self._listeners.setdefault(listener, HostedListener(self, listener))

        def listen(tell: Tell) -> Outcome | Pending:
            try:
                return self._local.listen(hosted, pattern, group, tell)
            except InvalidPattern:
                return False

        self._answer(number, self._service.hub, listen)

    def _unlisten(self, number: int, listener: int, pattern: bytes, group: bytes) -> None:
        hosted = self._listeners.setdefault(listener, HostedListener(self, listener))
        self._answer(
            number, self._service.hub, lambda tell: self._local.unlisten(hosted, pattern, group, tell)
        )

    def _full(self, listener: int) -> None:
        self._say_room(listener, is_full=True)

    def _room(self, listener: int) -> None:
        self._say_room(listener, is_full=False)

    def _say_room(self, listener: int, *, is_full: bool) -> None:
        hosted = self._listeners.get(listener)
        if hosted is not None:
            hosted.is_full = is_full

    def _leave(self, listener: int) -> None:
        hosted = self._listeners.pop(listener, None)
        if hosted is not None:
            self._local.leave(hosted)

    def _signal(self, number: int, channel: bytes, payload: bytes) -> None:
        self._answer(number, self._service.hub, lambda tell: self._local.signal(channel, payload, tell))

    def _value(self, number: int, step: str, key: bytes, arguments: list[int | bytes]) -> None:
        self._answer(number, key, lambda tell: self._local.value(step, key, arguments, tell))

    def _overview(self, number: int) -> None:
        self._answer(number, None, self._local.overview)

    def _list(self, number: int, prefix: bytes, limit: int, after: bytes) -> None:
        self._tell(number, [msgspec.msgpack.encode(view) for view in self._local.list(prefix, limit, after)])

    def _describe(self, number: int, key: bytes) -> None:
        view = self._local.describe(key)
        self._tell(number, [] if view is None else [msgspec.msgpack.encode(view)])

    def _channels(self, number: int, prefix: bytes) -> None:
        """Of this node's own clients: the others tell theirs."""
        self._tell(number, [msgspec.msgpack.encode(view) for view in self._service.channels(prefix)])


_HANDLERS: Final[Mapping[str, Callable[..., Any]]] = {
    "acquire": Host._acquire,
    "enqueue": Host._enqueue,
    "wait": Host._wait,
    "redeem": Host._redeem,
    "release": Host._release,
    "renew": Host._renew,
    "cancel": Host._cancel,
    "hurry": Host._hurry,
    "end": Host._end,
    "listen": Host._listen,
    "unlisten": Host._unlisten,
    "leave": Host._leave,
    "full": Host._full,
    "room": Host._room,
    "signal": Host._signal,
    "value": Host._value,
    "overview": Host._overview,
    "list": Host._list,
    "describe": Host._describe,
    "channels": Host._channels,
}
