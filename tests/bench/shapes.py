"""Planes of any source tree in each shape: one process on disk or on PostgreSQL, and five processes on PostgreSQL."""

import base64
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.cli.bench.measure import PROGRAM, SERVE, Server, started, unconfigured
from holdfast.common.role import SERVICES, Role
from tests.bench.store_bench import empty_postgres
from tests.infra.program import free_port

READY_S: Final = 30.0
_READY_POLL_S: Final = 0.05
_SECRET: Final = "a secret for the bench alone"
_ROOT_KEY: Final = (
    "-----BEGIN KRYPT-SYSTEM-ROOT-KEY-----\n"
    f"{base64.b64encode(bytes(range(32))).decode()}\n"
    "-----END KRYPT-SYSTEM-ROOT-KEY-----\n"
)


@dataclass(frozen=True, slots=True)
class Plane(Server):
    """Where it listens, and what all its processes spent together; PostgreSQL's own CPU is not in it."""

    behind: tuple[Server, ...] = field(default=())

    def cpu_s(self) -> float | None:
        spent = [Server.cpu_s(self), *(server.cpu_s() for server in self.behind)]
        return sum(each for each in spent if each is not None) if None not in spent else None

    def counters(self) -> dict[str, float]:
        total = Server.counters(self)
        for server in self.behind:
            for name, value in server.counters().items():
                total[name] = total.get(name, 0.0) + value
        return total


@contextmanager
def on_disk(folder: Path, root: Path) -> Iterator[Plane]:
    with _one_process(folder, root, f"disk://{folder}/store") as plane:
        yield plane


@contextmanager
def on_encrypted_disk(folder: Path, root: Path) -> Iterator[Plane]:
    """As `on_disk`, with a bundle that holds nothing but a root key: it turns encryption on."""
    bundle = folder / "server.pem"
    bundle.write_text(_ROOT_KEY)
    words = ("--bundle", str(bundle), "--disable-mtls")
    with _one_process(folder, root, f"disk://{folder}/store", *words) as plane:
        yield plane


@contextmanager
def on_postgres(folder: Path, root: Path) -> Iterator[Plane]:
    with empty_postgres() as (store_url, _), _one_process(folder, root, store_url) as plane:
        yield plane


@contextmanager
def split(folder: Path, root: Path) -> Iterator[Plane]:
    ports = {role: free_port() for role in (*SERVICES, Role.GATEWAY)}
    peers = [word for role in SERVICES for word in (f"--peer-{role}", f"http://127.0.0.1:{ports[role]}")]
    with empty_postgres() as (store_url, _), ExitStack() as stack:
        servers: list[Server] = []
        for role, port in ports.items():
            store = () if role == Role.GATEWAY else ("--store", store_url)
            words = (
                *PROGRAM,
                "serve",
                role,
                "--listen",
                f"127.0.0.1:{port}",
                "--qrf-disabled",
                *peers,
                *store,
            )
            variables = {**_environment(root), "HOLDFAST_INTERNAL_SECRET": _SECRET}
            servers.append(stack.enter_context(started(folder, words, environment=variables)))
        *behind, gateway = servers
        _wait_until_ready(gateway.url)
        yield Plane(gateway.url, gateway.pid, tuple(behind))


ROOT: Final = Path(__file__).parents[2]
SHAPES: Final[Mapping[str, Callable[[Path, Path], AbstractContextManager[Plane]]]] = {
    "disk": on_disk,
    "postgres": on_postgres,
    "split": split,
}


@contextmanager
def _one_process(folder: Path, root: Path, store_url: str, *more: str) -> Iterator[Plane]:
    words = (*SERVE, "--store", store_url, "--qrf-disabled", *more)
    with started(folder, words, environment=_environment(root)) as server:
        _wait_until_ready(server.url)
        yield Plane(server.url, server.pid)


def _environment(root: Path) -> dict[str, str]:
    """Imports come from that tree: these folders stand before the ones that are installed."""
    sources = sorted(str(path) for path in root.glob("*/*/src"))
    return {**unconfigured(), "PYTHONPATH": os.pathsep.join(sources)}


def _wait_until_ready(url: str) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_READY_POLL_S)
