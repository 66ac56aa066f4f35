"""The plane in one process: one store, and every service over it."""

from fastapi import FastAPI

from holdfast.common.drain import Drain
from holdfast.gateway.plane import Plane
from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.hosting import build_store_app


def create_app(settings: GatewaySettings) -> FastAPI:
    drain = Drain()
    return build_store_app("gateway", settings, [Plane(settings, drain)], drain=drain)
