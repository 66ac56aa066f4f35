"""The app of one service in a process of its own, over the store that it shares with the others."""

from collections.abc import Callable, Sequence
from typing import Protocol

from fastapi import FastAPI

from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.upstream.peers import Peers
from holdfast.storage.hosting.store_app import Part, build_store_app
from holdfast.txn.cluster.remote_lead import RemoteLead
from holdfast.txn.layers import Layers, open_layers
from holdfast.txn.protocol.access import TcAccess


class ServicePart(Part[Layers], Protocol):
    """A part that other processes call too."""

    @property
    def internal_routers(self) -> Sequence[ExpressRouter]: ...


def create_role_app(
    settings: PlaneSettings, role: Role, part_of: Callable[[Drain, Registry], ServicePart]
) -> FastAPI:
    drain, registry = Drain(), Registry()
    peers = Peers(settings, role, registry)
    part = part_of(drain, registry)
    leader = RemoteLead(peers.upstream(Role.TXN)) if Role.TXN in peers.clients else None
    return build_store_app(
        role.value,
        settings,
        [part],
        lambda store: open_layers(
            store, settings, role, registry, on_lease_end=drain.lease_ended, leader=leader
        ),
        routers=part.internal_routers,
        drain=drain,
        registry=registry,
        peers=peers,
        guard=TcAccess.of(settings).guard(),
    )
