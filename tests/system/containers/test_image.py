"""The commands of the container image as processes: who reaches the server, and what its health check finds."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.tls import client_context
from tests.infra.image import CONTAINERFILE, read_image
from tests.infra.program import free_port
from tests.service.common.certificates import Authority
from tests.system.cli import TIMEOUT_S

IMAGE = read_image()
OTHER_ADDRESS = "127.0.0.2"
"""Reaches what listens on all addresses, and not what listens on 127.0.0.1: as a published port does."""


@dataclass(slots=True)
class Container:
    """What a container has: a home and variables. The ports are free ones, because tests share a network."""

    home: Path
    port: int
    variables: dict[str, str]

    @property
    def log(self) -> str:
        return (self.home / "server.log").read_text()

    @contextmanager
    def running(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """The image's entry, with its default command unless arguments are given; yields when it says it is ready."""
        with self.start(*arguments) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("holdfast is ready at "), self.log
            yield process

    @contextmanager
    def start(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """The same, whatever becomes of it."""
        with (
            (self.home / "server.log").open("a") as log,
            subprocess.Popen(
                [*IMAGE.entry, *(arguments or IMAGE.command)],
                cwd=self.home,
                env=self.variables,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def health(self) -> tuple[int, str]:
        """Status and output of the health check."""
        done = subprocess.run(
            IMAGE.health_check,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


@pytest.fixture
def container(tmp_path: Path) -> Container:
    port = free_port()
    listen = IMAGE.variables.get("HOLDFAST_LISTEN", "127.0.0.1:9341")
    variables = {
        **IMAGE.variables,
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HOLDFAST_LISTEN": f"{listen.rpartition(':')[0]}:{port}",
        "HOLDFAST_HEALTH_LISTEN": f"127.0.0.1:{free_port()}",
    }
    return Container(tmp_path, port, variables)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A server bundle, mounted outside of the config directory."""
    path = tmp_path / "mounted" / "server.pem"
    path.parent.mkdir()
    path.write_bytes(Authority().bundle("lockd-server"))
    return path


def test_the_image_serves_the_port_that_it_exposes() -> None:
    assert IMAGE.variables["HOLDFAST_LISTEN"] == f":{IMAGE.port}"
    assert IMAGE.variables["HOLDFAST_HEALTH_LISTEN"].startswith("127.0.0.1:")
    assert CONTAINERFILE.read_text().count("HEALTHCHECK") == 1
    assert IMAGE.variables["HOME"] == "/var/lib/holdfast"


def test_what_is_stored_is_below_the_home_of_the_image(container: Container) -> None:
    with container.running():
        httpx.post(
            f"http://{OTHER_ADDRESS}:{container.port}/v1/acquire",
            json={"key": "k", "owner": "o", "ttl_seconds": 5},
            timeout=TIMEOUT_S,
        ).raise_for_status()

    assert any((container.home / ".local" / "share" / "holdfast").iterdir())


def test_the_listener_of_the_health_check_needs_no_certificate_and_knows_nothing_else(
    container: Container, bundle: Path
) -> None:
    port = free_port()
    container.variables |= {
        "HOLDFAST_BUNDLE": str(bundle),
        "HOLDFAST_DISABLE_STORAGE_ENCRYPTION": "true",
        "HOLDFAST_HEALTH_LISTEN": f":{port}",
    }

    with container.running():
        statuses = {
            path: httpx.get(f"http://{OTHER_ADDRESS}:{port}{path}", timeout=TIMEOUT_S).status_code
            for path in ("/healthz", "/readyz", "/metrics", "/version", "/docs", "/v1/describe")
        }

    assert {path for path, status in statuses.items() if status == 200} == {"/healthz", "/readyz"}
    assert set(statuses.values()) == {200, 404}


def test_the_plain_image_is_reached_from_outside_and_healthy(container: Container) -> None:
    with container.running():
        answer = httpx.get(f"http://{OTHER_ADDRESS}:{container.port}/readyz", timeout=TIMEOUT_S)

        assert answer.status_code == 200
        assert container.health() == (0, "")

    warning = next(line for line in map(json.loads, container.log.splitlines()) if line["lvl"] == "warn")
    assert warning["msg"] == "server.open"
    assert "without TLS" in warning["detail"]


def test_arguments_of_the_user_are_reached_just_so(container: Container) -> None:
    with container.running("all", "--store", "mem://", "--default-ttl", "5s"):
        answer = httpx.get(f"http://{OTHER_ADDRESS}:{container.port}/readyz", timeout=TIMEOUT_S)

        assert answer.status_code == 200
        assert container.health() == (0, "")


@pytest.mark.parametrize(
    "place", ["config directory", pytest.param("variable", marks=pytest.mark.long), "flag"]
)
def test_a_mounted_bundle_turns_tls_on_and_the_image_stays_healthy(
    place: str, container: Container, bundle: Path
) -> None:
    arguments: tuple[str, ...] = ()
    container.variables["HOLDFAST_DISABLE_STORAGE_ENCRYPTION"] = "true"  # This bundle has no root key.
    if place == "config directory":
        (container.home / ".holdfast").mkdir()
        bundle = bundle.rename(container.home / ".holdfast" / "server.pem")
    elif place == "variable":
        container.variables["HOLDFAST_BUNDLE"] = str(bundle)
    else:
        arguments = ("all", "--bundle", str(bundle))

    with container.running(*arguments):
        context = client_context(read_bundle(bundle))
        answer = httpx.get(
            f"https://{OTHER_ADDRESS}:{container.port}/readyz", verify=context, timeout=TIMEOUT_S
        )

        assert answer.status_code == 200
        assert container.health() == (0, "")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://{OTHER_ADDRESS}:{container.port}/readyz", timeout=TIMEOUT_S)

    assert "server.open" not in container.log


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ({"HOLDFAST_BUNDLE": "/run/secrets/server.pem"}, []),
        pytest.param({"HOLDFAST_DISABLE_MTLS": "false"}, [], marks=pytest.mark.long),
        ({}, ["all", "--no-disable-mtls"]),
        ({"HOLDFAST_OPEN_WITHOUT_BUNDLE": "false"}, []),
    ],
)
def test_tls_that_is_asked_for_and_has_no_bundle_stops_the_start(
    variables: dict[str, str], arguments: list[str], container: Container
) -> None:
    container.variables.update(variables)

    with container.start(*arguments) as process:
        assert process.wait(TIMEOUT_S) == 2

    assert "needed for mutual TLS" in container.log


def test_a_mount_that_became_a_directory_stops_the_start(container: Container) -> None:
    (container.home / ".holdfast" / "server.pem").mkdir(
        parents=True
    )  # What docker makes of a missing source.

    with container.start() as process:
        assert process.wait(TIMEOUT_S) == 2

    assert "server.pem is no file, but is needed for mutual TLS" in container.log


def test_the_health_check_finds_other_ports_and_unix_sockets(container: Container) -> None:
    with container.running("all", "--listen", f":{free_port()}"):
        assert container.health() == (0, "")

    with container.running("all", "--listen-proto", "unix", "--listen", str(container.home / "plane.sock")):
        assert container.health() == (0, "")


@pytest.mark.parametrize("kind", ["plain", "unix", "tls"])
def test_without_a_listener_of_its_own_the_health_check_asks_the_server(
    kind: str, container: Container, bundle: Path
) -> None:
    container.variables["HOLDFAST_HEALTH_LISTEN"] = "off"
    if kind == "unix":
        container.variables |= {
            "HOLDFAST_LISTEN_PROTO": "unix",
            "HOLDFAST_LISTEN": str(container.home / "plane.sock"),
        }
    if kind == "tls":
        container.variables |= {
            "HOLDFAST_BUNDLE": str(bundle),
            "HOLDFAST_DISABLE_STORAGE_ENCRYPTION": "true",
        }

    with container.running():
        assert container.health() == (0, "")

    status, told = container.health()
    assert status == 1
    assert told.startswith("not ready: ")


def test_a_server_that_is_gone_or_stuck_is_not_healthy(container: Container) -> None:
    with container.running() as process:
        process.send_signal(signal.SIGSTOP)
        assert container.health()[0] == 1
        process.send_signal(signal.SIGCONT)
        assert container.health() == (0, "")
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0

    assert container.health()[0] == 1


def test_a_service_that_misses_another_is_not_healthy_and_says_why(container: Container) -> None:
    peers = [
        word
        for service in ("leases", "state", "queue", "txn")
        for word in (f"--peer-{service}", f"http://127.0.0.1:{free_port()}")
    ]

    with container.running("gateway", "--internal-secret", "s" * 32, *peers):
        status, told = container.health()

    assert status == 1
    assert "leases" in told
