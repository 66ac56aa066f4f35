"""The gateway: the plane in one process over one store, or the proxy in front of one that runs as several."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI

from holdfast.common.role import Role, check_role
from holdfast.common.serving.drain import Drain
from holdfast.common.telemetry.metrics import Registry
from holdfast.gateway.admission.backpressure import Backpressure
from holdfast.gateway.composition import parts_of_plane
from holdfast.gateway.proxy.app import create_split_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.hosting.store_app import Part, build_store_app
from holdfast.storage.port import Store
from holdfast.txn.layers import Layers, open_layers
from holdfast.txn.protocol.access import TcAccess


def create_app(
    settings: GatewaySettings, role: Role = Role.ALL, parts: Sequence[Part[Layers]] = ()
) -> FastAPI:
    """All services in this process, or with `Role.GATEWAY` none of them: they are where the settings say.

    `parts` join those of the plane; a gateway alone takes no more of them than their routes and their ports for HTTP.
    """
    if role is Role.GATEWAY:
        check_role(settings, role)
        return create_split_app(settings, parts)
    drain = Drain()
    registry = Registry()
    served = [*parts_of_plane(settings, drain, registry), *parts]

    def layers(store: Store) -> AbstractAsyncContextManager[Layers]:
        return open_layers(store, settings, Role.ALL, registry, on_lease_end=drain.lease_ended)

    backpressure = None if settings.qrf_disabled else Backpressure(settings, registry)
    if backpressure is not None:
        backpressure.admission.guard([router for part in served for router in part.routers])
        served.append(backpressure)
    return build_store_app(
        "gateway",
        settings,
        served,
        layers,
        guard=TcAccess.of(settings).guard(),
        drain=drain,
        registry=registry,
        gates=None if backpressure is None else backpressure.admission.gates,
    )
