"""`holdfast serve gateway|leases|state|queue|txn` as five programs over one PostgreSQL."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.infra.program import free_port
from tests.system.cli import TIMEOUT_S, Server, serving

SERVICES: Final = ("leases", "state", "queue", "txn")
SECRET: Final = "a secret for the tests alone"


@dataclass(slots=True)
class SplitProgram:
    """The processes of one plane; each may be started and killed by itself."""

    home: Path
    store_url: str
    stack: ExitStack
    ports: dict[str, int] = field(
        default_factory=lambda: {role: free_port() for role in ("gateway", *SERVICES)}
    )
    servers: dict[str, Server] = field(default_factory=dict[str, Server])

    @property
    def url(self) -> str:
        return self.url_of("gateway")

    def url_of(self, role: str) -> str:
        return f"http://127.0.0.1:{self.ports[role]}"

    def start_all(self, *more: str) -> None:
        """Start all with the same flags and wait until the gateway finds each of them well."""
        for role in ("gateway", *SERVICES):
            self.start(role, *more)
        self.until(lambda: self.readiness() == {})

    def start(self, role: str, *more: str) -> None:
        """Start one of them, `more` being flags of its own."""
        peers = [
            word
            for service in SERVICES
            for word in (f"--peer-{service}", f"http://127.0.0.1:{self.ports[service]}")
        ]
        flags = (role, "--listen", f"127.0.0.1:{self.ports[role]}", *peers)
        store = () if role == "gateway" else ("--store", self.store_url)
        secret = {"HOLDFAST_INTERNAL_SECRET": SECRET}
        self.servers[role] = self.stack.enter_context(serving(self.home, *flags, *store, *more, **secret))

    def kill(self, role: str) -> None:
        self.servers[role].stop(signal.SIGKILL)

    def readiness(self) -> dict[str, str]:
        answer = httpx.get(f"{self.url}/readyz", timeout=TIMEOUT_S)
        reasons: dict[str, str] = {} if answer.status_code == 200 else answer.json()["reasons"]
        return reasons

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline_s, self.readiness()
            time.sleep(0.05)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=TIMEOUT_S)
