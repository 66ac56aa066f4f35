"""The plane in one process: one store, and every service over it."""

from fastapi import FastAPI

from holdfast.common.drain import Drain
from holdfast.common.metrics import Registry
from holdfast.gateway.backpressure import Backpressure
from holdfast.gateway.plane import Plane
from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.hosting import build_store_app


def create_app(settings: GatewaySettings) -> FastAPI:
    drain = Drain()
    registry = Registry()
    plane = Plane(settings, drain, registry)
    if settings.qrf_disabled:
        return build_store_app("gateway", settings, [plane], drain=drain, registry=registry)
    backpressure = Backpressure(settings, registry)
    backpressure.admission.document(plane.routers)
    return build_store_app(
        "gateway",
        settings,
        [plane, backpressure],
        drain=drain,
        registry=registry,
        admit=backpressure.admission.admit,
        leave=backpressure.admission.leave,
    )
