"""This service alone in its process, over the store of its settings."""

from fastapi import FastAPI

from holdfast.leases.settings import LeasesSettings
from holdfast.storage.hosting import build_store_app


def create_app(settings: LeasesSettings) -> FastAPI:
    return build_store_app("leases", settings)
