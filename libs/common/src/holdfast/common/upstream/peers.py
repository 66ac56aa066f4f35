"""The other services as one process of a split plane reaches them, from its settings."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from holdfast.common.express.execution import Identify
from holdfast.common.express.message import Header
from holdfast.common.ids import HEADER as CORRELATION_HEADER
from holdfast.common.ids import fresh_correlation_id
from holdfast.common.logging import current_cid
from holdfast.common.role import Role, peer_roles, peer_urls
from holdfast.common.security.bundle import InvalidBundle, read_bundle
from holdfast.common.security.internal_identity import (
    DEADLINE_HEADER,
    HEADER,
    Signer,
    Verifier,
    identify_with,
    internal_keys,
)
from holdfast.common.serving.health import Health
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.telemetry.tracing import outgoing_headers
from holdfast.common.upstream.address import parse_address
from holdfast.common.upstream.limits import DEFAULT_UPSTREAM_LIMITS, UpstreamLimits
from holdfast.common.upstream.peer import Peer
from holdfast.common.upstream.port import RequestStream, Upstream, UpstreamAnswer
from holdfast.common.upstream.service import ServiceClient

_LABELS: Final = ("service", "peer")


class Peers:
    """One client for each service that a process of this role calls; used inside `running`."""

    def __init__(
        self,
        settings: PlaneSettings,
        role: Role,
        registry: Registry,
        *,
        limits: UpstreamLimits = DEFAULT_UPSTREAM_LIMITS,
    ) -> None:
        keys = internal_keys(settings)
        if not keys:
            raise InvalidBundle(settings.bundle, "no root key to sign calls with; set --internal-secret")
        self.signer = Signer(keys[0], role)
        self.identify: Identify = identify_with(Verifier(keys))
        """The hook of an app that is called by other processes of the plane."""
        tls = _tls(settings, role)
        probe_path = "/readyz" if role is Role.GATEWAY else "/healthz"
        self.clients: Mapping[Role, ServiceClient] = {
            service: ServiceClient(
                service.value,
                [
                    Peer(service.value, parse_address(url), limits, tls)
                    for url in peer_urls(settings, service)
                ],
                probe_path=probe_path,
                limits=limits,
            )
            for service in peer_roles(settings, role)
        }
        _show(self.clients, registry)

    def upstream(self, service: Role) -> Upstream:
        """Calls of this process itself to a service, signed."""
        return SignedUpstream(self.clients[service], self.signer)

    def add_checks(self, health: Health) -> None:
        """Let `/readyz` say which service cannot be reached, and why."""
        for service, client in self.clients.items():
            health.add(service.value, client.problem)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe all replicas for the length of the block."""
        async with AsyncExitStack() as stack:
            for client in self.clients.values():
                await stack.enter_async_context(client.running())
            yield


def _tls(settings: PlaneSettings, role: Role) -> ssl.SSLContext | None:
    """Peers with https:// URLs ask for a certificate: this process shows that of its bundle."""
    urls = [url for service in peer_roles(settings, role) for url in peer_urls(settings, service)]
    if not any(url.startswith("https:") for url in urls):
        return None
    if not settings.has_bundle:
        raise InvalidBundle(settings.bundle, "does not exist, but peers with https:// URLs ask for it")
    from holdfast.common.security.tls import client_context  # As in `bundle.py`.

    return client_context(read_bundle(settings.bundle))


def _show(clients: Mapping[Role, ServiceClient], registry: Registry) -> None:
    calls = registry.counter("holdfast.upstream.calls", "Calls to a replica, probes included.", _LABELS)
    failures = registry.counter("holdfast.upstream.failures", "Calls to a replica that failed.", _LABELS)
    retries = registry.counter("holdfast.upstream.retries", "Calls that were sent again.", ("service",))
    for client in clients.values():
        client.retries = retries.labels(client.service)
        for peer in client.peers:
            peer.calls = calls.labels(peer.service, peer.url)
            peer.failures = failures.labels(peer.service, peer.url)
    peers = [peer for client in clients.values() for peer in client.peers]

    def show(name: str, help_text: str, read: Callable[[Peer], float]) -> None:
        registry.gauge(
            f"holdfast.upstream.{name}",
            help_text,
            _LABELS,
            callback=lambda: {(peer.service, peer.url): float(read(peer)) for peer in peers},
        )

    show("ready", "1 while a replica is well.", lambda peer: peer.is_well)
    show("connections", "Open connections to a replica.", lambda peer: peer.pool.open_count)
    show("idle", "Connections to a replica that no call uses.", lambda peer: peer.pool.idle_count)


class SignedUpstream:
    """An `Upstream` whose every call carries the identity of this process."""

    def __init__(self, upstream: Upstream, signer: Signer) -> None:
        self._upstream = upstream
        self._signer = signer

    async def call(
        self,
        method: str,
        target: str,
        headers: Sequence[Header] = (),
        body: bytes | RequestStream = b"",
        *,
        deadline_s: float | None,
        affinity: bytes = b"",
        is_repeatable: bool = False,
    ) -> UpstreamAnswer:
        """See `Upstream.call`."""
        signature = self._signer.sign(method, target, body if isinstance(body, bytes) else None)
        signed: list[Header] = [
            (HEADER, signature),
            (CORRELATION_HEADER, (current_cid.get() or fresh_correlation_id()).encode("ascii")),
            *outgoing_headers(),
            *headers,
        ]
        if deadline_s is not None:
            signed.append((DEADLINE_HEADER, b"%d" % max(1, int(deadline_s * 1000))))
        return await self._upstream.call(
            method,
            target,
            signed,
            body,
            deadline_s=deadline_s,
            affinity=affinity,
            is_repeatable=is_repeatable,
        )

    async def problem(self) -> str | None:
        """See `Upstream.problem`."""
        return await self._upstream.problem()
