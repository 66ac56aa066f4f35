"""This service alone in its process, over the store of its settings."""

from fastapi import FastAPI

from holdfast.state.settings import StateSettings
from holdfast.storage.hosting import build_store_app


def create_app(settings: StateSettings) -> FastAPI:
    return build_store_app("state", settings)
