"""The SDK against the plane in a process of its own: crashes, drains, bad networks, TLS, failover."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Client, ClientOptions, InvalidArgument, LeaseLost, Session, State, TransportFailed
from holdfast.client.testing import Chaos, TestServer, fixtures
from holdfast.common.security.bundle import InvalidBundle
from tests.service.common.certificates import Authority

# As a user's tests would take them; `pytest_plugins` is for the topmost conftest only.
holdfast_server, holdfast_client = fixtures.holdfast_server, fixtures.holdfast_client

WAIT_S = 30.0
FLAGS = ("--qrf-disabled",)
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    """One for all tests that do not stop it."""
    with TestServer(*FLAGS) as running:
        yield running


def add(session: Session, state: State | None) -> int:
    total = (0 if state is None else int(state.json())) + 1
    session.save(total)
    return total


def test_a_server_that_is_not_there_is_passed_over(server: TestServer) -> None:
    with Client(NOBODY, server.url) as client:
        totals = [client.acquire_for_update("failover", add) for _ in range(3)]

    assert totals == [1, 2, 3]


def test_a_crash_loses_neither_lease_nor_document() -> None:
    with TestServer(*FLAGS, store="disk") as server, server.client() as client:
        client.acquire_for_update("orders", add)
        session = client.acquire("orders", ttl_s=60)
        session.save(7)
        server.restart()

        staged, public = session.load(), client.load("orders")
        session.release()
        committed = client.load("orders")

    assert (staged, public, committed) == (7, 1, 7)


def test_a_server_that_stops_gets_its_leases_back_and_does_not_wait_for_the_rest_of_its_time() -> None:
    flags = (*FLAGS, "--drain-grace", "60s", "--shutdown-timeout", "120s")
    with TestServer(*flags, stop_timeout_s=WAIT_S) as server, server.client() as client:
        session = client.acquire("orders", ttl_s=2)

        status = server.stop()

        with pytest.raises(LeaseLost, match="about to stop"):
            session.release()
    assert status == 0


def test_a_client_without_a_server_says_so(server: TestServer) -> None:
    with Client(NOBODY) as client, pytest.raises(TransportFailed):
        client.acquire("orders", block_s=0)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_counter_survives_a_bad_network(seed: int) -> None:
    chaos = Chaos(seed=seed, delay_max_s=0.005, reset_probability=0.05)
    options = ClientOptions(timeout_s=5.0)
    answered = 0
    with TestServer(*FLAGS, chaos=chaos, options=options) as server, server.client() as client:
        for _ in range(20):
            try:
                client.acquire_for_update("n", add, ttl_s=1, block_s=5)
                answered += 1
            except TransportFailed:
                continue  # Whether the release arrived is not known; the counter may be one ahead.
        with Client(server.direct_url) as direct:
            total = direct.load("n", 0)

    assert answered <= total <= 20
    assert answered > 0


def test_a_unix_socket_serves_as_well() -> None:
    with TestServer(*FLAGS, listen="unix") as server, server.client() as client:
        total = client.acquire_for_update("orders", add)

    assert server.url.startswith("unix:///")
    assert total == 1


def test_mutual_tls_lets_in_whoever_has_a_bundle(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "server.pem").write_bytes(authority.bundle("server"))
    (tmp_path / "client.pem").write_bytes(authority.bundle("worker-1"))
    (tmp_path / "stranger.pem").write_bytes(Authority().bundle("stranger"))
    flags = (*FLAGS, "--bundle", str(tmp_path / "server.pem"), "--disable-storage-encryption")

    with TestServer(*flags) as server:
        with server.client(options=ClientOptions(bundle=tmp_path / "client.pem")) as client:
            total = client.acquire_for_update("orders", add)
        with server.client(options=ClientOptions(bundle=tmp_path / "stranger.pem")) as stranger:
            with pytest.raises(TransportFailed):
                stranger.get("orders")

    assert server.url.startswith("https://")
    assert total == 1


def test_a_bundle_that_is_none_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidBundle, match="can't be read"):
        Client("https://127.0.0.1:1", options=ClientOptions(bundle=tmp_path / "absent.pem"))
    with pytest.raises(InvalidArgument):
        Client("unix:///a.sock", "unix:///b.sock")


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="store"), TestServer(store="nonsense://"):
        pass


def test_the_fixtures_give_a_server_and_its_client(
    holdfast_server: TestServer, holdfast_client: Client
) -> None:
    assert holdfast_client.endpoints[0].name == holdfast_server.url
    assert holdfast_client.load("orders") is None
