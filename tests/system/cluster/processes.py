"""A cluster of real processes over mutual TLS, each on a disk store of its own."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.infra.program import free_port
from tests.service.common.certificates import Authority
from tests.service.txn.tc_node import Certificates
from tests.system.cli import Server, holdfast, serving
from tests.system.tools import armed_program

AGREED_WITHIN_S = 60


class TcProcess:
    """One node that can be killed, frozen and started again under its address."""

    def __init__(self, authority: Authority, home: Path, name: str) -> None:
        self.home = home
        self.certificates = Certificates(authority, home / "bundles", name)
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._stack = ExitStack()
        self._server: Server | None = None

    def start(self, join: list[str]) -> None:
        paths = self.certificates.paths
        flags = {
            "listen": f"127.0.0.1:{self.port}",
            "store": f"disk://{self.home / 'store'}",
            "bundle": str(paths["server"]),
            "tc-client-bundle": str(paths["client"]),
            "self": self.url,
            "join": ",".join(join),
            "tc-leader-ttl": "1s",
            "tc-fixed-quorum": str(len(join)),
            "txn-replay-interval": "1s",
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        switches = ("--tc-allow-default-ca", "--disable-storage-encryption")
        program = (sys.executable, armed_program.__file__, "serve")
        self._server = self._stack.enter_context(serving(self.home, *program, *words, *switches))

    def arm(self, failpoints: str) -> None:
        """From now on it meets them."""
        path = self.home / armed_program.FAILPOINTS
        path.write_text(failpoints)
        self.send(signal.SIGUSR1)
        self._wait(lambda: not path.exists(), "its failpoints are not armed")

    def died(self) -> None:
        """Return when it has killed itself."""
        assert self._server is not None
        process = self._server.process
        self._wait(lambda: process.poll() == -signal.SIGKILL, "it is still there")
        self._stack.close()

    def _wait(self, condition: Callable[[], bool], told: str) -> None:
        ends_at_s = time.monotonic() + AGREED_WITHIN_S
        while not condition():
            assert time.monotonic() < ends_at_s, told
            time.sleep(0.02)

    def send(self, number: int) -> None:
        assert self._server is not None
        self._server.process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._stack.close()

    def close(self) -> None:
        self._stack.close()

    def ask(
        self,
        path: str,
        body: object = None,
        *,
        as_: str = "client",
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        method = "GET" if body is None and content is None else "POST"
        with httpx.Client(
            verify=self.certificates.contexts[as_], trust_env=False, timeout=20, headers=headers
        ) as client:
            return client.request(method, f"{self.url}{path}", json=body, content=content)

    def leader(self) -> dict[str, Any]:
        """What it says; nothing if it can't."""
        try:
            answer = self.ask("/v1/tc/leader")
        except httpx.HTTPError:
            return {}
        return dict(answer.json()) if answer.status_code == 200 else {}


class TcProcesses:
    """The nodes, and every leader that any of them was seen to follow."""

    def __init__(self, home: Path, count: int) -> None:
        self.home = home
        authority = Authority()
        self.nodes: list[TcProcess] = []
        for number in range(count):
            folder = home / f"node-{number}"
            folder.mkdir()
            self.nodes.append(TcProcess(authority, folder, f"node-{number}"))
        self.leaders: dict[int, str] = {}

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def agreed(self, nodes: list[TcProcess], above_term: int = 0) -> tuple[TcProcess, int]:
        """Wait until these follow one of them in a later term."""
        ends_at_s = time.monotonic() + AGREED_WITHIN_S
        while time.monotonic() < ends_at_s:
            views = [node.leader() for node in nodes]
            named = {(view.get("leader_endpoint", ""), int(view.get("term", 0))) for view in views}
            for url, term in named:
                if url:
                    assert self.leaders.setdefault(term, url) == url, f"two leaders in term {term}"
            url, term = next(iter(named))
            if len(named) == 1 and url in [node.url for node in nodes] and term > above_term:
                return next(node for node in nodes if node.url == url), term
            time.sleep(0.05)
        raise AssertionError(f"no leader after term {above_term}: {[node.leader() for node in nodes]}")

    def tc(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`holdfast tc …` with the certificate of the first node."""
        endpoints = [word for url in self.urls for word in ("--endpoint", url)]
        bundle = str(self.nodes[0].certificates.paths["client"])
        return holdfast(self.home, "tc", *arguments, *endpoints, "--bundle", bundle)

    def tc_leave(self, node: TcProcess) -> "subprocess.CompletedProcess[str]":
        bundle = str(node.certificates.paths["server"])
        return holdfast(self.home, "tc", "leave", "--endpoint", node.url, "--server-bundle", bundle)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.tc("status", "--output", "json").stdout))


@contextmanager
def tc_processes(home: Path, count: int) -> Iterator[TcProcesses]:
    cluster = TcProcesses(home, count)
    try:
        for node in cluster.nodes:
            node.start(cluster.urls)
        yield cluster
    finally:
        for node in cluster.nodes:
            node.close()
