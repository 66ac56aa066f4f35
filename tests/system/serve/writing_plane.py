"""A plane with one service in it that writes: the real process around a part that the tests need."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext

from holdfast.cli.serve import url_of
from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.process import run
from holdfast.common.serving.server import PlaneServer
from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.hosting.store_app import build_store_app
from holdfast.storage.port import Batch, Store


class WritingPart:
    """`POST /write` commits one record, `POST /read` tells how many there are."""

    def __init__(self) -> None:
        self._store: Store | None = None
        router = ExpressRouter()
        router.add("/write", self._write)
        router.add("/read", self._read)
        self.routers: Sequence[ExpressRouter] = [router]

    @asynccontextmanager
    async def running(self, layers: Store) -> AsyncGenerator[None, None]:
        self._store = layers
        yield

    async def _write(self, request: Request, body: object) -> Answer:
        assert self._store is not None
        return json_answer({"revision": await self._store.commit(Batch(puts={b"written": b"once"}))})

    async def _read(self, request: Request, body: object) -> Answer:
        assert self._store is not None
        return json_answer({"found": await self._store.get(b"written") is not None})


def announce(server: PlaneServer) -> None:
    urls = ", ".join(url_of(address, is_tls=False) for address in server.addresses)
    sys.stdout.write(f"holdfast is ready at {urls} \n")
    sys.stdout.flush()


if __name__ == "__main__":
    settings = GatewaySettings()
    app = build_store_app("gateway", settings, [WritingPart()], nullcontext, guard=None)
    run(app, settings, on_started=announce)
