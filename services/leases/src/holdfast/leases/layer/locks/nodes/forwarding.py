"""Requests of this node's clients: decided here if the key is at home here, else forwarded to its home."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import msgspec

from holdfast.leases.layer.locks.listening import ChannelView, together
from holdfast.leases.layer.locks.nodes.gathering import Gathering, asked
from holdfast.leases.layer.locks.nodes.held import Held
from holdfast.leases.layer.locks.nodes.link import NodeLink, RemoteCall
from holdfast.leases.layer.locks.nodes.signals import HUB, NodeSignals, call, ignore
from holdfast.leases.layer.locks.records import Outcome, Pending, Refused, Session, Tell
from holdfast.leases.layer.locks.service import LIST_MAX, LockService
from holdfast.leases.layer.locks.signals import Listener
from holdfast.leases.layer.locks.views import LockView


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
