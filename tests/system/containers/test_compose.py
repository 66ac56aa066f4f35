"""The plane as containers: it comes up from nothing, works through its gateway, and outlives the loss of any of its parts."""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.infra.program import free_port

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

FILE: Final = Path(__file__).parents[3] / "deploy" / "compose.yaml"
START_S: Final = 180
SERVICES: Final = ("leases", "state", "queue", "txn")


def _compose() -> list[str]:
    """Compose is a plug-in of docker, or a program of its own."""
    plug_in = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return ["docker", "compose"] if plug_in.returncode == 0 else [str(shutil.which("docker-compose"))]


@dataclass(slots=True)
class Containers:
    """A project of compose, and the gateway that it publishes."""

    command: list[str]
    variables: dict[str, str]
    client: httpx.Client

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.command, *arguments], env=self.variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
        answer = self.client.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        members: dict[str, Any] = answer.json()
        return members

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + START_S
        while not is_so():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{what}: {self.readiness()}\n{self.run('logs', '--tail', '40')}")
            time.sleep(0.5)

    def readiness(self) -> str:
        try:
            answer = self.client.get("/readyz")
        except httpx.TransportError as error:
            return str(error) or type(error).__name__
        return answer.text if answer.status_code != 200 else ""

    def change(self, key: str, document: dict[str, Any]) -> None:
        """One turn of a worker: acquire, update, release."""
        lease = self.post("/v1/acquire", {"key": key, "owner": "worker", "ttl_seconds": 30})
        claim = {
            "X-Lease-ID": lease["lease_id"],
            "X-Txn-ID": lease["txn_id"],
            "X-Fencing-Token": str(lease["fencing_token"]),
        }
        self.post(f"/v1/update?key={key}", document, claim)
        ended = {"key": key, "lease_id": lease["lease_id"], "txn_id": lease["txn_id"]}
        assert self.post("/v1/release", ended, claim)["released"]

    def read(self, key: str) -> Any:
        return self.post(f"/v1/get?key={key}&public=1", None)


@pytest.fixture(scope="module")
def plane() -> Iterator[Containers]:
    port = free_port()
    project = f"holdfast-test-{secrets.token_hex(4)}"
    variables = {
        **os.environ,
        "POSTGRES_PASSWORD": secrets.token_hex(16),
        "HOLDFAST_INTERNAL_SECRET": secrets.token_hex(16),
        "HOLDFAST_PORT": str(port),
    }
    command = [*_compose(), "-p", project, "-f", str(FILE)]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        containers = Containers(command, variables, client)
        try:
            containers.run("up", "-d")
            containers.until(lambda: not containers.readiness(), "the plane did not become ready")
            yield containers
        finally:
            containers.run("down", "-v", "--timeout", "5")


def test_a_document_goes_through_all_services(plane: Containers) -> None:
    plane.change("orders/1", {"state": "open"})

    assert plane.read("orders/1") == {"state": "open"}


def test_a_message_is_sent_taken_and_resolved(plane: Containers) -> None:
    meta = {"queue": "work"}
    sent = plane.client.post(
        "/v1/queue/enqueue",
        files={
            "meta": (None, httpx.Response(200, json=meta).text, "application/json"),
            "payload": ("payload", b"hello", "text/plain"),
        },
    )
    assert sent.status_code == 200, sent.text

    taken = plane.client.post("/v1/queue/dequeue", json={"queue": "work", "owner": "worker"})

    assert taken.status_code == 200
    assert b"hello" in taken.content


def test_nobody_outside_reaches_internal_paths(plane: Containers) -> None:
    assert plane.client.post("/internal/v1/txn/decide", json={}).status_code == 404


def test_containers_do_not_run_as_root(plane: Containers) -> None:
    for service in ("gateway", *SERVICES):
        assert plane.run("exec", "-T", service, "id", "-u").strip() == "10001"


def test_compose_itself_finds_all_of_them_healthy(plane: Containers) -> None:
    ids = plane.run("ps", "-q", "gateway", *SERVICES).split()

    def states() -> set[str]:
        inspected = subprocess.run(
            ["docker", "inspect", "-f", "{{.State.Health.Status}}", *ids],
            capture_output=True,
            text=True,
            check=True,
        )
        return set(inspected.stdout.split())

    plane.until(lambda: states() == {"healthy"}, "not all containers became healthy")


@pytest.mark.parametrize("service", [*SERVICES, "redis", "postgres"])
def test_the_plane_works_again_after_the_loss_of_one_container(plane: Containers, service: str) -> None:
    key = f"after/{service}"
    plane.change(key, {"turn": 1})
    plane.run("kill", "-s", "KILL", service)
    if service in SERVICES:
        plane.until(lambda: service in plane.readiness(), f"the loss of {service} did not show")
    plane.run("up", "-d")
    plane.until(lambda: not plane.readiness(), f"the plane did not recover from the loss of {service}")

    def has_changed() -> bool:
        try:
            plane.change(key, {"turn": 2})
        except AssertionError:
            return False  # The old lease, or a connection that was lost with the container.
        return True

    plane.until(has_changed, "no change went through")

    assert plane.read(key) == {"turn": 2}
