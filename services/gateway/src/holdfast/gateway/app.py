"""The gateway: the plane in one process over one store, or the doors of a plane that runs as several."""

from fastapi import FastAPI

from holdfast.common.drain import Drain
from holdfast.common.metrics import Registry
from holdfast.common.role import Role, check_role
from holdfast.gateway.backpressure import Backpressure
from holdfast.gateway.plane import Plane
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.split import create_split_app
from holdfast.storage.hosting import build_store_app


def create_app(settings: GatewaySettings, role: Role = Role.ALL) -> FastAPI:
    """All services in this process, or with `Role.GATEWAY` none of them: they are where the settings say."""
    if role is Role.GATEWAY:
        check_role(settings, role)
        return create_split_app(settings)
    drain = Drain()
    registry = Registry()
    plane = Plane(settings, drain, registry)
    if settings.qrf_disabled:
        return build_store_app("gateway", settings, [plane], drain=drain, registry=registry)
    backpressure = Backpressure(settings, registry)
    backpressure.admission.guard(plane.routers)
    return build_store_app(
        "gateway",
        settings,
        [plane, backpressure],
        drain=drain,
        registry=registry,
        admit=backpressure.admission.admit,
        leave=backpressure.admission.leave,
    )
