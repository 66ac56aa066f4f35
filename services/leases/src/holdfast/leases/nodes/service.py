"""The locks, signals and values of several processes over one store, as each of them offers them to its clients.

A key has one home among the nodes, by rendezvous hashing; what is asked of another node goes there over a link. All subscriptions to
signals are at one node, the home of the hub, so that a group is one group and a connection gets a signal once.

In memory the home alone knows who holds a key. When a key gets another home, or the home can't be reached any more, what clients of this
node hold there is lost, and their connections end, so that they know; the next home begins after that. Durable locks are in the store:
they go on by their tokens at whichever node is home.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdfast.common.backoff import Backoff
from holdfast.common.logging import get_logger
from holdfast.leases.layer.locks.durable.service import DurableLockService
from holdfast.leases.layer.locks.records import Lock, Outcome, Pending, Refused, Session, Tell
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.nodes.forwarding import ForwardingLockService
from holdfast.leases.nodes.host import Host
from holdfast.leases.nodes.link import NodeLink
from holdfast.leases.nodes.membership import Membership
from holdfast.leases.nodes.records import link_key
from holdfast.leases.nodes.signals import HUB
from holdfast.storage.errors import StorageError
from holdfast.storage.port import Store

FIRST_LINKS_S_MAX: Final = 2.0
BEAT_S_MAX: Final = 0.5
GIVE_BACKS_MAX: Final = 120
GIVE_BACK_PAUSE_S: Final = 0.25
"""Together so long; after that the lease has to end it."""

_log = get_logger("leases.locks")


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Where this node listens for the others, host:port; how long it counts after it was heard of last."""

    address: str = "127.0.0.1:0"
    ttl_s: float = 6.0
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None


class NodeLockService(ForwardingLockService):
    """As one node has them."""

    hub = HUB

    def __init__(self, local: LockService, store: Store, options: NodeOptions) -> None:
        super().__init__(local)
        self.hosts: set[Host] = set()
        self._is_durable = isinstance(local, DurableLockService)
        self._store = store
        self._node_options = options
        self._membership = Membership(
            store,
            options.ttl_s,
            # Of two nodes that decide about a durable lock only one is recorded.
            joins_at_once=self._is_durable,
            on_change=self._changed,
            on_loss=self._lose_all,
        )
        self._has_left = False
        self._key = b""
        # A lost link is noticed before the place of the other node is taken.
        self._beat_s = min(BEAT_S_MAX, options.ttl_s / 12)
        self._ending: list[tuple[Session, bool]] = []
        """Gone while this node was frozen."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None

    # -- tickets

    @property
    def node(self) -> str:
        return self._membership.id

    def redeem(self, node: str, ticket: str, key: bytes, timeout_s: float, tell: Tell) -> Outcome | Pending:
        link = self._links.get(node)
        if link is None or self.is_stopping:
            return super().redeem(node, ticket, key, timeout_s, tell)
        give_back = partial(self._give_back, key)
        return link.call("redeem", ticket, key, timeout_s, tell=tell, is_waiting=True, give_back=give_back)

    # -- who decides

    def decides(self, key: bytes) -> bool:
        return not self._has_left and self._membership.is_mine(key)

    def _home(self, key: bytes) -> LockService | NodeLink | None:
        """This node's own locks, the way to another one, or None: no node can decide now."""
        member = self._membership.home(key)
        if member is None or self._has_left:
            return None
        if member.id == self._membership.id:
            return self.local if member.is_ready else None
        return self._links.get(member.id)

    # -- sessions

    def begin_session(self, address: str = "") -> Session:
        session = self.local.begin_session(address)
        self._clients[session.number] = session
        return session

    def end_session(self, session: Session, *, keeps_leases: bool = False) -> None:
        self._membership.look()  # While it is still known as a client, so that the tokens of keys that moved are kept.
        self._clients.pop(session.number, None)
        self.end_local(session, keeps_leases=keeps_leases)
        for link in self._links.values():
            if link.clients.pop(session.number, None) is not None:
                link.say("end", session.number, keeps_leases)
        held = self._held.pop(session)
        if self._is_durable and self.options.releases_with_session and not keeps_leases:
            for key, token in held:
                self._give_back(key, token)

    def _give_back(self, key: bytes, token: bytes, attempts: int = GIVE_BACKS_MAX) -> None:
        """Again and again, until a node answers that decides."""

        def told(outcome: Outcome) -> None:
            if outcome is Refused.UNAVAILABLE and attempts > 1 and not self.is_stopping:
                again = partial(self._give_back, key, token, attempts - 1)
                asyncio.get_running_loop().call_later(GIVE_BACK_PAUSE_S, again)

        found = self.release(Session(0), key, token, told)
        if not isinstance(found, Pending):
            told(found)

    def end_hosted(self, session: Session) -> None:
        """The node of this client can't be reached. What is recorded goes on: its client may come by another way."""
        self.end_local(session, keeps_leases=self._is_durable)

    def end_local(self, session: Session, *, keeps_leases: bool = False) -> None:
        """What it holds here goes to the next, unless another node may have granted it meanwhile."""
        self._membership.look()
        if self._membership.is_frozen:
            self._ending.append((session, keeps_leases))
        else:
            self.local.end_session(session, keeps_leases=keeps_leases)
            session.has_ended = True

    # -- what becomes of the other nodes

    def link_is_open(self, link: NodeLink) -> None:
        self._signals.link_is_open(link)

    def link_is_lost(self, link: NodeLink) -> None:
        """What clients of this node hold there is lost, unless it is recorded."""
        if not self._is_durable:
            for session in list(link.clients.values()):
                if self._held.has(session, link):
                    self._lose(session)
        link.clients.clear()
        if not self._has_left:
            self._spawn(self._membership.look_again())

    def session_is_lost(self, link: NodeLink, number: int) -> None:
        session = self._clients.get(number)
        if session is not None and not self._is_durable:
            self._lose(session)

    def _lose(self, session: Session) -> None:
        if session.on_lost is not None:
            session.on_lost()

    def _lose_all(self) -> None:
        """Others have taken the place of this node: whatever it knows of its keys may be otherwise by now."""
        for lock in list(self.table.locks):
            self._keep_tokens(lock)
            self.local.lose(lock.name)
        self.values.keep(lambda key: False)

    def _keep_tokens(self, lock: Lock) -> None:
        """Clients of this node hold durable locks by their tokens, wherever their home is."""
        if self._is_durable:
            for holder in lock.holders.values():
                if holder.session.number in self._clients:
                    self._held.add(holder.session, lock.name, holder.token, None)

    def _changed(self) -> None:
        """Keys may have got another home, nodes may have come or gone."""
        self._connect()
        if self._membership.is_frozen:
            return
        for lock in list(self.table.locks):
            if not self.decides(lock.name):
                self._keep_tokens(lock)
                self.local.lose(lock.name)
        self.values.keep(self.decides)
        ending, self._ending = self._ending, []
        for session, keeps_leases in ending:
            self.end_local(session, keeps_leases=keeps_leases)
        self._signals.look()
        if isinstance(self.local, DurableLockService):
            if self._loading is not None:
                self._loading.cancel()
            self._loading = self._spawn(self._load(self.local))

    async def _load(self, durable: DurableLockService) -> None:
        """Their leases end here from now on, also of keys that no client asks for; so this is tried until it is done."""
        backoff = Backoff(None)
        while True:
            try:
                await durable.load(self.decides)
            except StorageError as error:
                _log.debug("locks.nodes.load_failed", reason=error.detail)
            else:
                return
            await backoff.pause()

    def _may_sweep(self) -> bool:
        self._membership.look()
        return not self._membership.is_frozen

    def _connect(self) -> None:
        others = {} if self._has_left else {member.id: member for member in self._membership.others}
        for name in set(self._links) - set(others):
            self._spawn(self._links.pop(name).stop())
        for name, member in others.items():
            if name not in self._links:
                tls = self._node_options.client_tls
                link = NodeLink(name, member.address, self._key, self._beat_s, self, tls)
                self._links[name] = link
                link.start()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.local.figures = self.figures
        self.local.on_expired = self.on_expired
        self.local.may_sweep = self._may_sweep
        host, _, port = self._node_options.address.rpartition(":")
        self._key = await link_key(self._store)
        server = await asyncio.get_running_loop().create_server(
            lambda: Host(self, self._key, self._beat_s),
            host.strip("[]"),
            int(port),
            ssl=self._node_options.server_tls,
        )
        try:
            bound = server.sockets[0].getsockname()[1]
            async with self.local.running(), self._membership.running(f"{host}:{bound}"):
                await self._first_links()
                yield
                # Clients of other nodes hear that what they hold here is lost; then others take this place.
                server.close()
                await self._disconnect()
        finally:
            server.close()

    async def _first_links(self) -> None:
        links = [link.is_connected.wait() for link in self._links.values()]
        try:
            async with asyncio.timeout(FIRST_LINKS_S_MAX):
                await asyncio.gather(*links)
        except TimeoutError:
            return  # A node is gone, or comes later.

    async def _disconnect(self) -> None:
        self._has_left = True
        for host in list(self.hosts):
            host.end()
        links, self._links = list(self._links.values()), {}
        for link in links:
            await link.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
