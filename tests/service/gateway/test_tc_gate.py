"""Certificates between coordinators in front of a split plane: checked by the gateway, known to the process behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.ids import new_xid
from holdfast.common.security.tls import server_context
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, gateway_before, url_of, with_identity
from tests.infra.program import free_port
from tests.service.common.certificates import Authority
from tests.service.txn.tc_node import Certificates

ANNOUNCEMENT = {"self_endpoint": "https://a"}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(Authority(), tmp_path, "a")


@asynccontextmanager
async def gateway(certificates: Certificates, **flags: Any) -> AsyncIterator[str]:
    """A gateway with TLS in front of services without."""
    app = with_identity(create_app(GatewaySettings.isolated(store="mem://")))
    address = f"127.0.0.1:{free_port()}"
    listener = Listener(address, tls=server_context(certificates.bundle))
    files: dict[str, Any] = {
        "bundle": certificates.paths["server"],
        "config_dir": certificates.paths["server"].parent,
    }
    async with (
        running(app, LOOPBACK, options=ServeOptions(drain_grace_s=0)) as behind,
        gateway_before(url_of(behind), listener=listener, **files, **flags),
    ):
        yield f"https://{address}"


def calling(certificates: Certificates, kind: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=certificates.contexts[kind], trust_env=False, timeout=20)


async def test_no_one_is_trusted_by_default(certificates: Certificates) -> None:
    async with gateway(certificates) as url, calling(certificates, "server") as client:
        for path, body in (
            ("/v1/tc/cluster/list", None),
            ("/v1/tc/cluster/announce", ANNOUNCEMENT),
            ("/v1/txn/replay", {"txn_id": new_xid()}),
        ):
            answer = await client.post(url + path, json=body)
            assert (answer.status_code, answer.json()["error"]) == (403, "tc_forbidden"), path


async def test_servers_and_clients_may_do_what_is_theirs(certificates: Certificates) -> None:
    async with (
        gateway(certificates, tc_default_ca_allowed=True) as url,
        calling(certificates, "server") as server,
        calling(certificates, "client") as client,
    ):
        refused = await client.post(f"{url}/v1/tc/cluster/announce", json=ANNOUNCEMENT)
        announced = await server.post(f"{url}/v1/tc/cluster/announce", json=ANNOUNCEMENT)
        listed = await client.get(f"{url}/v1/tc/cluster/list")

    assert (refused.status_code, refused.json()["error"]) == (403, "tc_forbidden")
    assert announced.json()["endpoints"] == ["https://a"]
    assert listed.json()["endpoints"] == ["https://a"]
