"""What the gateway's hop costs: CPU of both processes for a call through it, against the same call sent directly."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from tests.bench.http_bench import cpu_s
from tests.bench.http_load import run_load

REQUESTS_DEFAULT: Final = 16_000
WARM_UP: Final = 1_000
ROUNDS: Final = 8
HOP_TO_CALL_MAX: Final = 1.5

_KEY: Final = "orders/4711"


@dataclass(frozen=True, slots=True)
class Hop:
    """One kind of call; times are CPU of a process per request, user and system."""

    name: str
    direct_us: float
    service_us: float
    gateway_us: float

    @property
    def to_call(self) -> float:
        """What the way through the gateway adds, as a multiple of the call itself."""
        return round((self.gateway_us + self.service_us - self.direct_us) / self.direct_us, 3)


@dataclass(frozen=True, slots=True)
class _Server:
    process: psutil.Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def _server(kind: str, argument: str) -> Iterator[_Server]:
    command = [sys.executable, "-m", "tests.bench.gateway_server", kind, argument]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root
    ) as process:
        try:
            assert process.stdout is not None
            server = _Server(psutil.Process(process.pid), int(process.stdout.readline()))
            _wait_until_ready(server)
            yield server
        finally:
            process.terminate()


def _wait_until_ready(server: _Server) -> None:
    deadline_s = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{server.url}/readyz", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def _post(
    server: _Server, path: str, members: object, headers: dict[str, str] | None = None
) -> dict[str, str]:
    request = urllib.request.Request(
        server.url + path, json.dumps(members).encode(), headers or {}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, str] = json.loads(answer.read())
    return found


def _request(path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: bench",
        "Content-Type: application/json",
        "Accept: */*",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _calls(service: _Server) -> dict[str, bytes]:
    """A read of a document, and a write that always has the same answer: a lease that is kept alive."""
    lease = _post(service, "/v1/acquire", {"key": _KEY, "owner": "bench", "ttl_seconds": 1800})
    claim = {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }
    _post(service, f"/v1/update?key={_KEY}", {"state": "open", "amount": 42}, claim)
    ended = {"key": _KEY, "lease_id": lease["lease_id"], "txn_id": lease["txn_id"]}
    _post(service, "/v1/release", ended, claim)
    held = _post(service, "/v1/acquire", {"key": "held", "owner": "bench", "ttl_seconds": 1800})
    keep = {"key": "held", "lease_id": held["lease_id"], "txn_id": held["txn_id"], "ttl_seconds": 1800}
    token = f"X-Fencing-Token: {held['fencing_token']}"
    return {
        "get": _request(f"/v1/get?key={_KEY}&public=1", b""),
        "keepalive": _request("/v1/keepalive", json.dumps(keep).encode(), token),
    }


def _measure(call: bytes, service: _Server, gateway: _Server, requests: int) -> tuple[float, float, float]:
    service_s = cpu_s(service.process)
    run_load("127.0.0.1", service.port, call, requests)
    direct_s = cpu_s(service.process) - service_s
    service_s, gateway_s = cpu_s(service.process), cpu_s(gateway.process)
    run_load("127.0.0.1", gateway.port, call, requests)
    behind_s, front_s = cpu_s(service.process) - service_s, cpu_s(gateway.process) - gateway_s
    return tuple(each / requests * 1e6 for each in (direct_s, behind_s, front_s))  # type: ignore[return-value]


def run(requests: int = REQUESTS_DEFAULT) -> dict[str, object]:
    """Of each figure the least counts: whatever else the machine does can only add to it."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-"))
        service = stack.enter_context(_server("service", f"disk://{folder}/store"))
        gateway = stack.enter_context(_server("gateway", service.url))
        calls = _calls(service)
        for call in calls.values():
            _measure(call, service, gateway, WARM_UP)
        rows: list[Hop] = []
        for name, call in calls.items():
            rounds = [_measure(call, service, gateway, requests // ROUNDS) for _ in range(ROUNDS)]
            rows.append(Hop(name, *(round(min(column), 1) for column in zip(*rounds, strict=True))))
    return {
        "rows": [{**asdict(row), "to_call": row.to_call} for row in rows],
        "hop_to_call": max(row.to_call for row in rows),
        "hop_to_call_max": HOP_TO_CALL_MAX,
    }


def main() -> None:
    result = run(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS_DEFAULT)
    rows = result["rows"]
    assert isinstance(rows, list)
    for row in rows:
        print(  # noqa: T201 - a bench prints
            f"{row['name']:<10} direct {row['direct_us']:>6.1f} µs, through the gateway {row['gateway_us']:>6.1f} + "
            f"{row['service_us']:>6.1f} µs: the hop is {row['to_call']} of the call"
        )
    print(f"hop / call {result['hop_to_call']} (at most {HOP_TO_CALL_MAX})")  # noqa: T201


if __name__ == "__main__":
    main()
