"""A private plane inside this event loop, reached through a unix socket that no other process knows.

The SDK stands without the server: what it needs of it is looked up by name when this is called, so that
`holdfast.client` alone imports nothing of it.
"""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI

from holdfast.client.aio.client import AsyncClient
from holdfast.client.options import ClientOptions
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.common.settings import PlaneSettings


@asynccontextmanager
async def inprocess(
    *, store: str = "mem://", options: ClientOptions | None = None, **settings: Any
) -> AsyncIterator[AsyncClient]:
    """`async with inprocess() as client`: leaving the block stops the server and removes its folder.

    `settings` are fields of the server's settings, such as `ttl_s_default=5`; the environment is not read.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-inproc-") as folder:
        path = Path(folder) / "plane.sock"
        plane = _gateway_settings(store=store, listen=str(path), listen_proto="unix", **settings)
        # A test does not wait for leases that it forgot: the drain ends when the client has hung up.
        serve_options = ServeOptions(
            disable_mtls=True,
            is_express=plane.express,
            drain_grace_s=plane.drain_grace_s,
            shutdown_timeout_s=plane.shutdown_timeout_s,
        )
        async with (
            running(_create_app(plane), Listener(str(path), "unix"), options=serve_options),
            AsyncClient(f"unix://{path}", options=options) as client,
        ):
            yield client


def _gateway_settings(**fields: Any) -> PlaneSettings:
    settings_class = cast(type[PlaneSettings], import_module("holdfast.gateway.settings").GatewaySettings)
    return settings_class.isolated(**fields)


def _create_app(settings: PlaneSettings) -> FastAPI:
    create = cast(Callable[[PlaneSettings], FastAPI], import_module("holdfast.gateway.app").create_app)
    return create(settings)
