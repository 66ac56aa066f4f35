"""This service alone in its process, over the store of its settings."""

from fastapi import FastAPI

from holdfast.storage.hosting import build_store_app
from holdfast.txn.settings import TxnSettings


def create_app(settings: TxnSettings) -> FastAPI:
    return build_store_app("txn", settings)
