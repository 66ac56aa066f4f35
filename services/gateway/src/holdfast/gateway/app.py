"""The plane in one process: one store, and every service over it."""

from fastapi import FastAPI

from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.hosting import build_store_app


def create_app(settings: GatewaySettings) -> FastAPI:
    return build_store_app("gateway", settings)
