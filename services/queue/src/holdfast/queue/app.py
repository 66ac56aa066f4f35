"""This service alone in its process, over the store of its settings."""

from fastapi import FastAPI

from holdfast.queue.settings import QueueSettings
from holdfast.storage.hosting import build_store_app


def create_app(settings: QueueSettings) -> FastAPI:
    return build_store_app("queue", settings)
