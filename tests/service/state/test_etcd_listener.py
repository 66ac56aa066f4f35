"""The port for clients of etcd: its own paths, and what it says at `/version` and `/health`."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.role import Role
from holdfast.common.serving.app import parts_of
from holdfast.common.serving.listener import ListenError
from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import PlaneServer, ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.state.app import create_app as create_state_app
from holdfast.state.settings import StateSettings
from tests.infra.gateway import LOOPBACK, SECRET, gateway_settings, url_of
from tests.service.common.certificates import Authority

VERSIONS = {"etcdserver": "3.5.17", "etcdcluster": "3.5.0"}
ADDRESSES: dict[str, Any] = {"listen": "127.0.0.1:0", "etcd_listen": "127.0.0.1:0"}
WAYS = pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
SHAPES = pytest.mark.parametrize("shape", ["all in one", "gateway"])


@asynccontextmanager
async def _plane(shape: str, *, is_express: bool = True) -> AsyncIterator[tuple[PlaneServer, str]]:
    """The process that clients talk to, and its port for clients of etcd."""
    options = ServeOptions(is_express=is_express, drain_grace_s=0)
    async with AsyncExitStack() as stack:
        if shape == "gateway":
            behind = StateSettings.isolated(store="mem://", internal_secret=SECRET)
            server = await stack.enter_async_context(
                running(create_state_app(behind), LOOPBACK, options=options)
            )
            read = gateway_settings([url_of(server)], **ADDRESSES)
            app = create_app(read, Role.GATEWAY)
        else:
            read = GatewaySettings.isolated(store="mem://", **ADDRESSES)
            app = create_app(read)
        plane = await stack.enter_async_context(running(app, *listeners_of(app, read), options=options))
        if shape == "gateway":
            for service in app.state.peers.clients.values():
                await service.peers[0].probe("/readyz")
        address = plane.addresses_of("etcd")[0]
        assert isinstance(address, tuple)
        yield plane, f"http://127.0.0.1:{address[1]}"


@WAYS
@SHAPES
async def test_its_version_is_that_of_an_etcd_to_the_byte(shape: str, is_express: bool) -> None:
    async with _plane(shape, is_express=is_express) as (_, port), httpx.AsyncClient(base_url=port) as client:
        answer = await client.get("/version")

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.content == b'{"etcdserver":"3.5.17","etcdcluster":"3.5.0"}'


@SHAPES
async def test_the_port_of_the_plane_tells_it_beside_its_own_version(shape: str) -> None:
    async with _plane(shape) as (plane, _), httpx.AsyncClient(base_url=url_of(plane)) as client:
        version = (await client.get("/version")).json()

    assert set(version) == {"name", "service", "version", "python", "api", *VERSIONS}
    assert VERSIONS.items() <= version.items()


@WAYS
@SHAPES
async def test_both_ports_say_whether_the_process_is_ready(shape: str, is_express: bool) -> None:
    async with _plane(shape, is_express=is_express) as (plane, port), httpx.AsyncClient() as client:
        bases = port, url_of(plane)
        ready = [await client.get(f"{base}/health") for base in bases]
        parts_of(plane.config.app).health.add("disk", lambda: "it is full")  # type: ignore[arg-type]  # it is ours
        full = [await client.get(f"{base}/health") for base in bases]

    assert [(answer.status_code, answer.content) for answer in ready] == [(200, b'{"health":"true"}')] * 2
    assert [(answer.status_code, answer.content) for answer in full] == [(503, b'{"health":"false"}')] * 2


async def test_it_has_nothing_of_other_protocols() -> None:
    async with _plane("all in one") as (_, port), httpx.AsyncClient(base_url=port) as client:
        paths = ("/v1/describe?key=a", "/readyz", "/metrics", "/docs", "/v2/keys", "/")
        answers = [await client.get(path) for path in paths]

    assert [answer.status_code for answer in answers] == [404] * len(paths)


async def test_without_its_setting_there_is_no_such_port() -> None:
    read = GatewaySettings.isolated(store="mem://", listen="127.0.0.1:0")

    assert "etcd" not in {listener.name for listener in listeners_of(create_app(read), read)}


def test_an_address_that_others_reach_needs_tls() -> None:
    read = GatewaySettings.isolated(store="mem://", listen="127.0.0.1:0", etcd_listen="0.0.0.0:2379")
    app = create_app(read)

    with pytest.raises(ListenError, match=r"0\.0\.0\.0:2379 without TLS .*--disable-mtls"):
        PlaneServer(app, listeners_of(app, read))
    PlaneServer(app, listeners_of(app, read), ServeOptions(disable_mtls=True))


def test_with_a_bundle_it_asks_for_certificates_as_the_main_listener_does(tmp_path: Path) -> None:
    bundle = tmp_path / "server.pem"
    bundle.write_bytes(Authority().bundle("server"))
    secure = {"bundle": bundle, "storage_encryption_disabled": True}
    read = GatewaySettings.isolated(store="mem://", **{**ADDRESSES, "etcd_listen": "0.0.0.0:2379"}, **secure)

    by_name = {listener.name: listener for listener in listeners_of(create_app(read), read)}
    main, etcd = by_name["main"], by_name["etcd"]

    assert main.tls is not None and etcd.tls is not None
    assert etcd.tls.verify_mode is main.tls.verify_mode is ssl.CERT_REQUIRED
    assert not etcd.is_open
