"""The image in a container engine: a published port reaches it, and the engine finds it healthy, with TLS and without."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.tls import client_context
from tests.service.common.certificates import Authority

pytestmark = [pytest.mark.compose, pytest.mark.timeout(300)]

IMAGE: Final = os.environ.get("HOLDFAST_IMAGE", "holdfast-plane")
PORT: Final = 9341
START_S: Final = 120


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Container:
    """A running one; its port is published to this machine alone."""

    id: str
    port: int = PORT

    @property
    def address(self) -> str:
        return docker("port", self.id, str(self.port)).splitlines()[0]

    def until_healthy(self) -> None:
        deadline_s = time.monotonic() + START_S
        while (health := docker("inspect", "-f", "{{.State.Health.Status}}", self.id)) != "healthy":
            assert time.monotonic() < deadline_s, f"{health}: {docker('logs', self.id)}"
            time.sleep(0.5)


@contextmanager
def container(*arguments: str, options: tuple[str, ...] = (), port: int = PORT) -> Iterator[Container]:
    started = docker("run", "-d", "-p", f"127.0.0.1::{port}", *options, IMAGE, *arguments)
    try:
        yield Container(started, port)
    finally:
        docker("rm", "-f", "-v", started)


@pytest.mark.parametrize("options", [(), ("--init",)], ids=["plain", "under an init"])
def test_a_published_port_reaches_the_plane(options: tuple[str, ...]) -> None:
    with container(options=options) as plane:
        plane.until_healthy()

        assert httpx.get(f"http://{plane.address}/readyz", timeout=START_S).status_code == 200


def test_another_port_is_healthy_too() -> None:
    with container("all", "--listen", ":9000", "--store", "mem://", port=9000) as plane:
        plane.until_healthy()

        assert httpx.get(f"http://{plane.address}/readyz", timeout=START_S).status_code == 200


def test_a_mounted_bundle_turns_tls_on(tmp_path: Path) -> None:
    bundle = tmp_path / "server.pem"
    bundle.write_bytes(Authority().bundle("lockd-server"))
    bundle.chmod(0o644)  # The server is not root.
    options = (
        *("-v", f"{bundle}:/var/lib/holdfast/.holdfast/server.pem:ro"),
        *("-e", "HOLDFAST_DISABLE_STORAGE_ENCRYPTION=true"),  # This bundle has no root key.
    )

    with container(options=options) as plane:
        plane.until_healthy()

        answer = httpx.get(
            f"https://{plane.address}/readyz", verify=client_context(read_bundle(bundle)), timeout=START_S
        )
        assert answer.status_code == 200
