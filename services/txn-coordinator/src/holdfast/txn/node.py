"""This node in its cluster: election, membership and registry wired together, running while the store is open."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final

from holdfast.common.clock import SteadyClock
from holdfast.common.errors import HoldfastError
from holdfast.common.express.router import ExpressRouter
from holdfast.common.logging import get_logger
from holdfast.common.settings import PlaneSettings, SettingsError
from holdfast.common.telemetry.metrics import Registry
from holdfast.storage.port import Store
from holdfast.txn.cluster.election.ballot import Node
from holdfast.txn.cluster.election.election import Election
from holdfast.txn.cluster.election.keeper import LeaseKeeper
from holdfast.txn.cluster.election.terms import StoredTerms
from holdfast.txn.cluster.election.timing import ElectionTiming
from holdfast.txn.cluster.endpoints import plain_endpoint
from holdfast.txn.cluster.leadership import Leader
from holdfast.txn.cluster.membership.membership import Membership
from holdfast.txn.cluster.membership.records import MemberTable
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerPort, Role
from holdfast.txn.cluster.registry.records import RmTable
from holdfast.txn.cluster.registry.registry import RmRegistry
from holdfast.txn.layer.island import backend_hash_of
from holdfast.txn.protocol.access import server_identity
from holdfast.txn.protocol.cluster import TcRoutes
from holdfast.txn.protocol.leader_lease import TcLeaseRoutes

OpenPeers = Callable[[PlaneSettings], AbstractAsyncContextManager[PeerPort]]

_PARTING_S: Final = 2.0

_log = get_logger("tc.cluster")


class TcCluster:
    """The `Leadership` of a process, with or without peers, and the endpoints that go with it."""

    def __init__(self, settings: PlaneSettings, registry: Registry) -> None:
        self._settings = settings
        self._endpoint = _endpoint(settings, settings.self_endpoint, "self_endpoint")
        self._seeds = sorted({_endpoint(settings, url, "join") for url in settings.join})
        self._timing = ElectionTiming(settings.tc_leader_ttl_s)
        self._election: Election | None = None
        self._membership: Membership | None = None
        self._show(registry)
        self._lease_routes = TcLeaseRoutes()
        self._routes = TcRoutes()
        self.peers: PeerPort
        """Calls to other nodes, while the store is open."""
        self.registry: RmRegistry
        """Where decisions for other stores are delivered to, while the store is open."""

    def _show(self, registry: Registry) -> None:
        """Figures of the cluster; all are zero without one."""
        registry.gauge(
            "holdfast.tc.is_leader",
            "1 while this node decides.",
            callback=lambda: float(self.term() is not None),
        )
        registry.gauge(
            "holdfast.tc.term", "Of the leader that this node follows; 0: of none.", callback=self._led_term
        )
        registry.gauge(
            "holdfast.tc.members",
            "Nodes that take part, this one included.",
            callback=lambda: float(len(self._membership.peers) if self._membership is not None else 0),
        )

    def _led_term(self) -> float:
        leader = self.leader()
        return float(leader.term) if leader is not None else 0.0

    @property
    def routers(self) -> Sequence[ExpressRouter]:
        return self._lease_routes.router, self._routes.router

    @property
    def is_clustered(self) -> bool:
        return bool(self._endpoint)

    def term(self) -> int | None:
        return self._election.term() if self._election is not None else None

    def leader(self) -> Leader | None:
        return self._election.leader() if self._election is not None else None

    @asynccontextmanager
    async def running(self, store: Store) -> AsyncIterator[None]:
        clock = store.clock
        async with AsyncExitStack() as stack:
            self.peers = peers = LatePeers(self._settings, stack)
            if self.is_clustered or self._settings.is_mtls_on:
                await peers.opened()  # A certificate that can't be read must stop the start.
            if self.is_clustered:
                await self._open_election(store)
            membership = self._membership = self._open_membership(store, clock)
            self.registry = RmRegistry(RmTable(store), self.peers, lambda: membership.others, clock.now_ms)
            self._routes.open(membership, self.registry)
            if self._election is None:
                yield
                return
            await membership.join()
            async with self._taking_part(store, self._election, membership):
                yield

    async def _open_election(self, store: Store) -> None:
        # The store's clock may step, at another moment in each process: a leader would lead for too long.
        clock = SteadyClock()
        node = Node(self._identity or f"tc-{_digest(self._endpoint)[:16]}", self._endpoint)
        keeper = await LeaseKeeper.opened(StoredTerms(store, node.id), clock.now_ms)
        self._election = Election(
            node, keeper, self.peers, now_ms=clock.now_ms, random=Random(), timing=self._timing
        )
        self._lease_routes.open(self._election, keeper)

    def _open_membership(self, store: Store, clock: SteadyClock) -> Membership:
        fixed_quorum = self._settings.tc_fixed_quorum
        ttl_ms = int(self._timing.member_ttl_s * 1000)
        return Membership(
            MemberTable(store, ttl_ms=ttl_ms, keeps_all=fixed_quorum > 0),
            self.peers,
            identity=self._identity or _digest(self._endpoint),
            endpoint=self._endpoint,
            seeds=self._seeds,
            timing=self._timing,
            now_ms=clock.now_ms,
            fixed_quorum=fixed_quorum,
            set_peers=self._set_peers,
        )

    def _set_peers(self, peers: Sequence[str], quorum: int | None) -> None:
        if self._election is not None:
            self._election.set_peers(peers, quorum)
        self.registry.members_changed()

    @asynccontextmanager
    async def _taking_part(
        self, store: Store, election: Election, membership: Membership
    ) -> AsyncIterator[None]:
        backend_hash = await backend_hash_of(store)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(election.run(), name="tc.election"),
                tasks.create_task(membership.run(), name="tc.membership"),
                tasks.create_task(
                    self.registry.keep_registered(backend_hash, self._endpoint), name="tc.rm.register"
                ),
            ]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                await _part(election, membership)

    @property
    def _identity(self) -> str | None:
        """This node's id in its own server certificate."""
        if not self._settings.is_mtls_on:
            return None
        # Imported with TLS only: cryptography.x509 is slow to import.
        from cryptography.hazmat.primitives.serialization import Encoding

        from holdfast.common.security.bundle import read_bundle

        leaf = read_bundle(self._settings.bundle).leaf
        return None if leaf is None else server_identity(leaf.public_bytes(Encoding.DER))


async def _part(election: Election, membership: Membership) -> None:
    """A stop in order hands over at once; if that takes too long, the leases run out by themselves."""
    try:
        async with asyncio.timeout(_PARTING_S):
            await election.resign()
            await membership.part()
    except (TimeoutError, HoldfastError) as error:
        _log.warn("tc.cluster.parting.incomplete", reason=str(error) or type(error).__name__)


def _digest(endpoint: str) -> str:
    return hashlib.sha256(endpoint.encode()).hexdigest()


def _endpoint(settings: PlaneSettings, url: str, name: str) -> str:
    if not url:
        return ""
    try:
        return plain_endpoint(url)
    except ValueError as error:
        raise SettingsError(f"{settings.subject(name)}: {url!r} {error}") from error


class LatePeers:
    """The `PeerPort` of a node whose HTTP clients are opened at the first call, which a node without a cluster rarely makes, and closed by `stack`."""

    def __init__(self, settings: PlaneSettings, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._opening = asyncio.Lock()
        self._peers: PeerPort | None = None

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Role = Role.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        peers = await self.opened()
        return await peers.call(endpoint, path, body, timeout_s=timeout_s, role=role, headers=headers)

    async def opened(self) -> PeerPort:
        """Raises InvalidBundle when a certificate that the calls show can't be read."""
        async with self._opening:
            if self._peers is None:
                open_peers = await asyncio.to_thread(_import_open_peers)
                self._peers = await self._stack.enter_async_context(open_peers(self._settings))
            return self._peers


def _import_open_peers() -> OpenPeers:
    # httpx, with its own command line, takes a tenth of the start of a process.
    from holdfast.txn.cluster.peers.http import open_peers

    return open_peers
