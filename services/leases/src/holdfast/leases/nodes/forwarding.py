"""Requests of this node's clients: decided here if the key is at home here, else forwarded to its home."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from holdfast.leases.layer.locks.listening import ChannelView, together
from holdfast.leases.layer.locks.records import Grant, Outcome, Pending, Refused, Session, Tell
from holdfast.leases.layer.locks.service import LIST_MAX, LockService
from holdfast.leases.layer.locks.signals import Listener
from holdfast.leases.layer.locks.views import LockView
from holdfast.leases.nodes.link import NodeLink, RemoteCall
from holdfast.leases.nodes.signals import HUB, NodeSignals, call, ignore

HELD_MAX: Final = 10_000
"""Of one client; of more, the oldest have to end with their leases."""
_QUEUED: Final = b""
"""In place of a token: a place in a queue, which may become a slot without a word."""


class ForwardingLockService(LockService):
    """`local` has what is at home here, the links lead to the others."""

    def __init__(self, local: LockService) -> None:
        super().__init__(local.options, local.now_s)
        self.local = local
        self.table, self.signals, self.values = local.table, local.signals, local.values
        self._links: dict[str, NodeLink] = {}
        self._clients: dict[int, Session] = {}
        """Sessions of this node, by their numbers."""
        self._held = Held()
        self._signals = NodeSignals(local, lambda: self._home(HUB))

    def _home(self, key: bytes) -> LockService | NodeLink | None:
        """This node's own locks, the way to another one, or None: no node can decide now."""
        raise NotImplementedError

    def _give_back(self, key: bytes, token: bytes) -> None:
        """Release what a client that is gone holds at another node."""
        raise NotImplementedError

    # -- locks and semaphores

    def acquire(
        self, session: Session, key: bytes, limit: int, ttl_s: int, timeout_s: float, tell: Tell
    ) -> Outcome | Pending:
        home = self._home(key)
        if isinstance(home, LockService):
            return home.acquire(session, key, limit, ttl_s, timeout_s, tell)
        told = partial(self._granted, session, key, home, tell)
        fields = (session, key, limit, ttl_s, timeout_s)
        return self._far(home, "acquire", *fields, tell=told, is_waiting=timeout_s > 0)

    def enqueue(self, session: Session, key: bytes, limit: int, ttl_s: int, tell: Tell) -> Outcome | Pending:
        home = self._home(key)
        if isinstance(home, LockService):
            return home.enqueue(session, key, limit, ttl_s, tell)
        told = partial(self._granted, session, key, home, tell)
        return self._far(home, "enqueue", session, key, limit, ttl_s, tell=told)

    def wait(self, session: Session, key: bytes, timeout_s: float, tell: Tell) -> Outcome | Pending:
        home = self._home(key)
        if isinstance(home, LockService):
            return home.wait(session, key, timeout_s, tell)
        told = partial(self._waited, session, key, home, tell)
        return self._far(home, "wait", session, key, timeout_s, tell=told, is_waiting=timeout_s > 0)

    def release(self, session: Session, key: bytes, token: bytes, tell: Tell) -> Outcome | Pending:
        home = self._home(key)
        if isinstance(home, LockService):
            return home.release(session, key, token, tell)

        def told(outcome: Outcome) -> None:
            if outcome is True:
                self._held.remove(session, key, token)
            tell(outcome)

        return self._far(home, "release", session, key, token, tell=told)

    def renew(self, session: Session, key: bytes, token: bytes, ttl_s: int, tell: Tell) -> Outcome | Pending:
        home = self._home(key)
        if isinstance(home, LockService):
            return home.renew(session, key, token, ttl_s, tell)
        return self._far(home, "renew", session, key, token, ttl_s, tell=tell)

    def cancel(self, pending: Pending) -> None:
        if isinstance(pending, RemoteCall):
            pending.link.cancel(pending)
        else:
            self.local.cancel(pending)

    def _far(
        self,
        link: NodeLink | None,
        kind: str,
        session: Session,
        *fields: Any,
        tell: Tell,
        is_waiting: bool = False,
    ) -> Outcome | Pending:
        if link is None or (is_waiting and self.is_stopping):
            return Refused.UNAVAILABLE
        found = link.call(
            kind,
            session.number,
            session.address,
            *fields,
            tell=tell,
            is_waiting=is_waiting,
            give_back=partial(self._give_back, fields[0]),
        )
        if isinstance(found, Pending) and session.number:
            link.clients[session.number] = session
        return found

    def _granted(
        self, session: Session, key: bytes, link: NodeLink | None, tell: Tell, outcome: Outcome
    ) -> None:
        if session.number in self._clients:
            self._held.granted(session, key, outcome, link)
        tell(outcome)

    def _waited(
        self, session: Session, key: bytes, link: NodeLink | None, tell: Tell, outcome: Outcome
    ) -> None:
        if session.number in self._clients:
            self._held.waited(session, key, outcome, link)
        tell(outcome)

    def begin_stop(self) -> None:
        self.is_stopping = True
        self.local.begin_stop()
        for link in self._links.values():
            link.refuse_waiting()

    # -- values

    def value(self, step: str, key: bytes, arguments: Sequence[int | bytes], tell: Tell) -> Outcome | Pending:
        home = self._home(key)
        if isinstance(home, LockService):
            return home.value(step, key, arguments, tell)
        return call(home, "value", step, key, list(arguments), tell=tell)

    # -- signals

    def listen(self, listener: Listener, pattern: bytes, group: bytes, tell: Tell) -> Outcome | Pending:

        def told(outcome: Outcome) -> None:
            if outcome is not True:
                self.listening.remove(listener, pattern, group)
            tell(outcome)

        found = self._signals.listen(listener, pattern, group, told)
        if found is True or isinstance(found, Pending):
            self.listening.add(listener, pattern, group, self.now_s())
        return found

    def unlisten(self, listener: Listener, pattern: bytes, group: bytes, tell: Tell) -> Outcome | Pending:
        self.listening.remove(listener, pattern, group)
        return self._signals.unlisten(listener, pattern, group, tell)

    def leave(self, listener: Listener) -> None:
        self.listening.leave(listener)
        self._signals.leave(listener)

    def signal(self, channel: bytes, payload: bytes, tell: Tell) -> Outcome | Pending:
        return self._signals.signal(channel, payload, tell)

    def push(self, listener: int, channel: bytes, payload: bytes) -> None:
        self._signals.push(listener, channel, payload)

    # -- what there is

    def overview(self, tell: Tell) -> Outcome | Pending:
        gathering = Gathering(cast(list[bytes], self.local.overview(ignore)), tell)
        return gathering.begun([link.call("overview", tell=gathering.take) for link in self._links.values()])

    async def describe_everywhere(self, key: bytes) -> LockView | None:
        home = self._home(key)
        if not isinstance(home, NodeLink):
            return self.describe(key)
        return next(iter(_views(await asked(home, "describe", key))), None)

    async def list_everywhere(
        self, prefix: bytes = b"", limit: int = LIST_MAX, after: bytes = b""
    ) -> Sequence[LockView]:
        answers = await asyncio.gather(
            *(asked(link, "list", prefix, limit, after) for link in self._links.values())
        )
        found = self.list(prefix, limit, after)
        for answer in answers:
            found += _views(answer)
        return sorted(found, key=lambda view: view.name)[:limit]

    async def channels_everywhere(self, prefix: bytes = b"") -> Sequence[ChannelView]:
        answers = await asyncio.gather(*(asked(link, "channels", prefix) for link in self._links.values()))
        texts = [text for answer in answers if isinstance(answer, list) for text in answer]
        far = [msgspec.msgpack.decode(text, type=ChannelView) for text in texts]
        return together([*self.channels(prefix), *far])


def _views(texts: Outcome) -> list[LockView]:
    if not isinstance(texts, list):
        return []
    return [msgspec.msgpack.decode(text, type=LockView) for text in texts]


class Gathering(Pending):
    """Lists of several nodes as one; a node that does not answer is left out."""

    __slots__ = ("_found", "_missing", "_tell")

    def __init__(self, found: Sequence[bytes], tell: Tell) -> None:
        self._found = list(found)
        self._missing = 0
        self._tell = tell

    @property
    def waits(self) -> bool:
        return False

    def begun(self, calls: Sequence[Outcome | Pending]) -> Outcome | Pending:
        """The whole if no other node is asked."""
        self._missing = sum(1 for call in calls if isinstance(call, Pending))
        return self if self._missing else self._found

    def take(self, outcome: Outcome) -> None:
        if isinstance(outcome, list):
            self._found += outcome
        self._missing -= 1
        if not self._missing:
            self._tell(self._found)


async def asked(link: NodeLink, kind: str, *fields: Any) -> Outcome:
    """What a node answers; something that is no list if it does not."""
    answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def take(outcome: Outcome) -> None:
        if not answer.done():
            answer.set_result(outcome)

    found = link.call(kind, *fields, tell=take)
    return await answer if isinstance(found, Pending) else found


class Held:
    """By client: keys and tokens, each with the node where it was got; None: here, when this node was home."""

    def __init__(self) -> None:
        self._of: dict[Session, dict[tuple[bytes, bytes], NodeLink | None]] = {}

    def granted(self, session: Session, key: bytes, outcome: Outcome, link: NodeLink | None) -> None:
        """An acquire or an enqueue came to this."""
        if isinstance(outcome, Grant):
            self.add(session, key, outcome.token, link)
        elif outcome is None:
            self.add(session, key, _QUEUED, link)

    def waited(self, session: Session, key: bytes, outcome: Outcome, link: NodeLink | None) -> None:
        """A wait came to this; it ends what an enqueue began."""
        self.remove(session, key, _QUEUED)
        self.granted(session, key, outcome, link)

    def add(self, session: Session, key: bytes, token: bytes, link: NodeLink | None) -> None:
        held = self._of.setdefault(session, {})
        held[key, token] = link
        if len(held) > HELD_MAX:
            del held[next(iter(held))]

    def remove(self, session: Session, key: bytes, token: bytes) -> None:
        held = self._of.get(session)
        if held is not None:
            held.pop((key, token), None)

    def has(self, session: Session, link: NodeLink) -> bool:
        """Whether it has anything there."""
        return link in self._of.get(session, {}).values()

    def pop(self, session: Session) -> list[tuple[bytes, bytes]]:
        """Its keys and tokens; nothing is known of it any more."""
        return [(key, token) for key, token in self._of.pop(session, {}) if token != _QUEUED]
