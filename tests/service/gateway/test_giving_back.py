"""Answers that give something away, through a gateway whose client is gone: stopped, or undone, by lane, ASGI and TLS."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from holdfast.common.express.message import JSON_HEADERS, Answer, Header, Request
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.undo import Undo
from holdfast.common.role import Role
from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.principal import Permission
from holdfast.common.security.tls import server_context
from holdfast.common.serving.app import build_app
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from tests.infra.gateway import LOOPBACK, identify
from tests.service.common.certificates import Authority
from tests.service.common.sample import Raw, Sample, request
from tests.service.gateway.sample_gateway import gateway_app, raw_of

UNDO_PATH = "/internal/v1/test/undo"
SOON_S = 20
WAYS = pytest.mark.parametrize(
    ("is_express", "is_gateway_express"),
    [(True, True), (True, False), (False, True)],
    ids=["lane", "gateway by asgi", "service by asgi"],
)


class Gift:
    """The text of an answer, as far as it was not handed over."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._text = b""

    def feed(self, piece: bytes) -> None:
        self._text += piece

    def handed_over(self) -> None:
        self._text = b""

    def request(self) -> bytes | None:
        return self._text or None


class Giver(Sample):
    """Answers when it is told to stop, as a service does whose answer was on its way."""

    def __init__(self, *, is_late: bool = False) -> None:
        super().__init__()
        self._is_late = is_late
        self.undone: asyncio.Queue[bytes] = asyncio.Queue()

    async def give(self, request: Request, body: None) -> Answer:
        self.entered.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            if not self._is_late:
                raise
        return Answer(200, b'"gift"', JSON_HEADERS)

    async def undo(self, request: Request, body: None) -> Answer:
        self.undone.put_nowait(request.body)
        return Answer(200)

    def router(self) -> ExpressRouter:
        router = ExpressRouter(service=Role.STATE, affinity="key")
        router.add("/v1/give", self.give, undo=Undo(UNDO_PATH, Gift))
        return router

    def app(self) -> FastAPI:
        internal = ExpressRouter(permission=Permission.INTERNAL)
        internal.add(UNDO_PATH, self.undo)
        return build_app("giver", express_routers=[self.router(), internal], identify=identify())


@asynccontextmanager
async def through_gateway(
    giver: Giver, *, is_express: bool = True, is_gateway_express: bool = True, bundle: Path | None = None
) -> AsyncIterator[Raw]:
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    tls = None if bundle is None else server_context(read_bundle(bundle))
    async with running(giver.app(), Listener("127.0.0.1:0", tls=tls), options=options) as behind:
        url = f"http{'' if tls is None else 's'}://127.0.0.1:{raw_of(behind).port}"
        settings: dict[str, Any] = {} if bundle is None else {"bundle": bundle}
        app, _ = gateway_app(giver, url, **settings)
        front_options = ServeOptions(is_express=is_gateway_express, drain_grace_s=0)
        async with running(app, LOOPBACK, options=front_options) as front:
            yield raw_of(front)


@pytest.fixture(params=["plain", "tls"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    if request.param == "plain":
        return None
    path = tmp_path / "server.pem"
    path.write_bytes(Authority().bundle("server"))
    return path


@WAYS
async def test_work_for_a_client_that_is_gone_is_stopped(is_express: bool, is_gateway_express: bool) -> None:
    giver = Giver()
    ways = through_gateway(giver, is_express=is_express, is_gateway_express=is_gateway_express)
    async with ways as gateway, asyncio.timeout(SOON_S):
        _, writer = await gateway.connect()
        writer.write(request("POST", "/v1/give"))
        await giver.entered.wait()

        writer.close()
        await giver.cancelled.wait()

    assert giver.undone.empty()


@pytest.mark.parametrize("is_gateway_express", [True, False], ids=["lane", "asgi"])
async def test_an_answer_that_comes_all_the_same_is_undone(
    bundle: Path | None, is_gateway_express: bool
) -> None:
    giver = Giver(is_late=True)
    ways = through_gateway(giver, is_gateway_express=is_gateway_express, bundle=bundle)
    async with ways as gateway, asyncio.timeout(SOON_S):
        _, writer = await gateway.connect()
        writer.write(request("POST", "/v1/give"))
        await giver.entered.wait()

        writer.close()

        assert await giver.undone.get() == b'"gift"'


async def test_an_answer_that_was_taken_is_not_undone() -> None:
    giver = Giver()
    giver.released.set()
    async with through_gateway(giver) as gateway:
        answer = await gateway.ask(request("POST", "/v1/give"))

    assert answer.endswith(b'"gift"')
    assert giver.undone.empty()
