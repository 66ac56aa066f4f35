"""`holdfast serve` as a real process: it answers, refuses what it must, and stops in order."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.tls import client_context
from tests.infra.program import free_port
from tests.service.common.certificates import Authority, pem
from tests.system.cli import TIMEOUT_S, Server, environment, holdfast, serving

ANY_PORT = ("--listen", "127.0.0.1:0")
PLANE = str(Path(__file__).with_name("writing_plane.py"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    """One for all tests that only look."""
    with serving(home, *ANY_PORT) as started:
        yield started


def get(server: Server, path: str) -> httpx.Response:
    return httpx.get(server.url + path, timeout=TIMEOUT_S)


def post(server: Server, path: str) -> httpx.Response:
    return httpx.post(server.url + path, timeout=TIMEOUT_S)


def test_the_plane_tells_where_it_is_and_what_it_stands_on(server: Server, home: Path) -> None:
    store = f"disk://{home}/.local/share/holdfast/store"

    assert server.announcement == f"holdfast is ready at {server.url} on {store}\n"


def test_the_plane_answers_health_version_metrics_and_docs(server: Server) -> None:
    answers = {path: get(server, path) for path in ("/healthz", "/readyz", "/version", "/metrics", "/docs")}

    assert [answer.status_code for answer in answers.values()] == [200] * 5
    assert answers["/healthz"].content == answers["/readyz"].content == b""
    assert answers["/version"].json()["service"] == "gateway"
    assert "# TYPE holdfast_http_requests_total counter" in answers["/metrics"].text
    assert answers["/docs"].text.startswith("<!doctype html>")


def test_a_plane_that_a_signal_ended_starts_again_on_its_store(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        with serving(tmp_path, *ANY_PORT) as server:
            assert get(server, "/readyz").status_code == 200
            assert server.stop(number) == (0 if number != signal.SIGKILL else -signal.SIGKILL)


def test_a_second_plane_on_the_same_store_is_told_who_has_it(server: Server, home: Path) -> None:
    second = holdfast(home, "serve", *ANY_PORT)

    assert second.returncode == 1
    error = second.stderr.strip().splitlines()[-1]
    assert error.startswith("error: the store ")
    assert f"process {server.process.pid} " in error
    assert "Traceback" not in second.stderr


def test_a_port_in_use_is_told(server: Server, home: Path) -> None:
    address = server.url.removeprefix("http://")

    second = holdfast(home, "serve", "--listen", address, "--store", "mem://")

    assert second.returncode == 1
    assert f"error: cannot listen on {address}" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("store", "problem"),
    [("what://ever", "unknown kind"), ("disk:///proc/nowhere", "opening the store /proc/nowhere")],
)
def test_a_store_that_can_not_be_opened_is_told(store: str, problem: str, tmp_path: Path) -> None:
    ended = holdfast(tmp_path, "serve", *ANY_PORT, "--store", store)

    assert ended.returncode == 1
    assert problem in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_listener_has_the_metrics_alone(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"

    with serving(tmp_path, *ANY_PORT, "--store", "mem://", "--metrics-listen", address) as server:
        get(server, "/healthz")
        metrics = httpx.get(f"http://{address}/metrics", timeout=TIMEOUT_S)
        health = httpx.get(f"http://{address}/healthz", timeout=TIMEOUT_S)

        assert 'route="/healthz"' in metrics.text
        assert health.status_code == 404
        assert server.stop() == 0


def test_a_listener_for_probes_has_health_alone_and_no_tls(tmp_path: Path) -> None:
    bundle, address = tmp_path / "server.pem", f"127.0.0.1:{free_port()}"
    bundle.write_bytes(Authority().bundle("server"))
    flags = ("--bundle", str(bundle), "--disable-storage-encryption", "--health-listen", address)

    with serving(tmp_path, *ANY_PORT, "--store", "mem://", *flags) as server:
        answers = [
            httpx.get(f"http://{address}{path}", timeout=TIMEOUT_S)
            for path in ("/healthz", "/readyz", "/metrics", "/v1/describe?key=a")
        ]
        assert server.stop() == 0

    assert server.url.startswith("https://")
    assert [answer.status_code for answer in answers] == [200, 200, 404, 404]


@pytest.mark.parametrize(("level", "least"), [("debug", {"debug", "info"}), ("error", set[str]())])
def test_only_lines_from_the_log_level_on_go_to_stderr(tmp_path: Path, level: str, least: set[str]) -> None:
    flags = ("--store", "mem://", "--log-level", level, "--lsf-sample-interval", "10ms")
    with serving(tmp_path, *ANY_PORT, *flags, "--lsf-log-interval", "10ms") as server:
        for _ in range(20):
            get(server, "/readyz")
        assert server.stop() == 0

    levels = {json.loads(line)["lvl"] for line in (tmp_path / "server.log").read_text().splitlines()}
    assert least <= levels <= (least | {"warn", "error"} if least else {"error"})


def test_a_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "plane.sock"

    with serving(tmp_path, "--listen-proto", "unix", "--listen", str(path), "--store", "mem://") as server:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://plane/readyz", timeout=TIMEOUT_S).status_code == 200
        assert server.url == f"unix://{path}"
        assert server.stop() == 0

    assert not path.exists()


def test_with_a_bundle_only_its_own_clients_are_let_in(tmp_path: Path) -> None:
    authority = Authority()
    bundle, denylist = tmp_path / "server.pem", tmp_path / "denied"
    bundle.write_bytes(authority.bundle("server"))
    denied_certificate, denied_key = authority.issue("denied")
    denylist.write_text(f"{denied_certificate.serial_number:x}\n")
    good = tls_client(tmp_path, authority, authority.bundle("client"))
    denied = tls_client(
        tmp_path, authority, pem(authority.certificate) + pem(denied_certificate) + pem(denied_key)
    )
    stranger = tls_client(tmp_path, authority, Authority().bundle("stranger"))
    flags = ("--bundle", str(bundle), "--denylist-path", str(denylist), "--disable-storage-encryption")

    with serving(tmp_path, *ANY_PORT, "--store", "mem://", *flags) as server:
        with good:
            answer = good.get(f"{server.url}/readyz", timeout=TIMEOUT_S)
        for client in (denied, stranger):
            with client, pytest.raises(httpx.TransportError):
                client.get(f"{server.url}/readyz", timeout=TIMEOUT_S)
        assert server.stop() == 0

    assert server.url.startswith("https://")
    assert answer.status_code == 200


def tls_client(folder: Path, authority: Authority, bundle: bytes) -> httpx.Client:
    """A client that trusts the authority and shows the certificate of its bundle."""
    path = folder / "client.pem"
    path.write_bytes(bundle)
    context = client_context(read_bundle(path))
    context.load_verify_locations(cadata=pem(authority.certificate).decode())
    return httpx.Client(verify=context)


def test_a_service_of_the_plane_works_on_its_store(tmp_path: Path) -> None:
    with serving(tmp_path, sys.executable, PLANE, HOLDFAST_LISTEN="127.0.0.1:0") as server:
        written = post(server, "/write")
        assert server.stop() == 0
    with serving(tmp_path, sys.executable, PLANE, HOLDFAST_LISTEN="127.0.0.1:0") as server:
        found = post(server, "/read")

    assert written.status_code == 200
    assert found.json() == {"found": True}


def test_a_failed_sync_turns_readiness_off_and_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, sys.executable, PLANE, HOLDFAST_LISTEN="127.0.0.1:0") as server:
        assert server.stop() == 0
    failing = {"HOLDFAST_LISTEN": "127.0.0.1:0", "HOLDFAST_FAILPOINT": "journal.sync:error"}

    with serving(tmp_path, sys.executable, PLANE, **failing) as server:
        before = get(server, "/readyz")
        write = post(server, "/write")
        after = get(server, "/readyz")
        alive = get(server, "/healthz")

    assert before.status_code == 200
    assert (write.status_code, write.json()["error"]) == (503, "storage_read_only")
    assert after.status_code == 503
    assert after.json()["error"] == "not_ready"
    assert "sync" in after.json()["reasons"]["store"]
    assert alive.status_code == 200


def test_every_service_runs_as_a_module(tmp_path: Path, postgres_url: str) -> None:
    services = ("gateway", "leases", "state", "queue", "txn")

    with ExitStack() as stack:
        processes = {service: module(service, tmp_path, postgres_url) for service in services}
        for process in processes.values():
            stack.enter_context(process)
            stack.callback(process.kill)  # Whatever fails, no client is waited for in vain.
        versions = {service: version_of(service, processes[service], tmp_path) for service in services}
        for process in processes.values():
            process.terminate()
        statuses = [process.wait(TIMEOUT_S) for process in processes.values()]

    assert {service: version["service"] for service, version in versions.items()} == {
        service: service for service in services
    }
    assert statuses == [0] * len(services)


def module(service: str, home: Path, store_url: str) -> "subprocess.Popen[str]":
    """`python -m` of a service, set by its own variables; its peers are not there."""
    variables = {
        "LISTEN": str(home / f"{service}.sock"),
        "LISTEN_PROTO": "unix",
        "STORE": store_url,
        "INTERNAL_SECRET": "a secret that all of them know",
        **{f"PEER_{peer}": "http://127.0.0.1:9" for peer in ("LEASES", "STATE", "QUEUE", "TXN")},
    }
    named = {f"HOLDFAST_{service.upper()}_{name}": value for name, value in variables.items()}
    return subprocess.Popen(
        [sys.executable, "-m", f"holdfast.{service}"],
        cwd=home,
        env=environment(home, **named),
        stderr=subprocess.PIPE,
        text=True,
    )


def version_of(service: str, process: "subprocess.Popen[str]", home: Path) -> dict[str, str]:
    assert process.stderr is not None
    assert any("server.listening" in line for line in process.stderr)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(home / f"{service}.sock"))) as client:
        version: dict[str, str] = client.get("http://plane/version", timeout=TIMEOUT_S).json()
    return version
