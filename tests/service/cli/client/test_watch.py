"""`holdfast client watch` against a plane in a process of its own."""

import json
import threading
from collections.abc import Iterator

import pytest

from holdfast.client import Client
from holdfast.client.testing import TestServer
from tests.infra.invocation import client


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running:
        with Client(running.url) as first:
            for key in ("orders/1", "parts/1"):
                with first.acquire(key, owner="worker-1") as session:
                    session.save({"n": 1})
            with first.acquire("orders/1", owner="worker-2") as session:
                session.remove()
        yield running


@pytest.fixture(autouse=True)
def target(server: TestServer, home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CLIENT_SERVER", server.url)


def test_events_are_lines_of_json() -> None:
    result = client("watch", "--prefix", "orders/", "--after", "0", "--count", "6", "--output", "json")

    acquired, put, released, _, deleted, _ = map(json.loads, result.stdout.splitlines())
    assert result.exit_code == 0
    assert list(acquired) == [
        *("revision", "last", "type", "namespace", "key", "expires_at_unix", "owner", "fencing_token")
    ]
    assert (put["type"], put["version"], put["last"], len(put["etag"])) == ("put", 1, False, 64)
    assert released == {
        "revision": put["revision"],
        "last": True,
        "type": "released",
        "namespace": "default",
        "key": "orders/1",
        "owner": "worker-1",
        "fencing_token": 1,
    }
    assert (deleted["type"], deleted["version"]) == ("delete", 2)

    rest = client("watch", "--after", str(put["revision"]), "--count", "1", "-o", "json")
    assert json.loads(rest.stdout)["key"] == "parts/1"


def test_events_are_lines_for_people() -> None:
    result = client("watch", "--prefix", "orders/", "--after", "0", "--count", "5")

    acquired, put, released, _, deleted = result.stdout.splitlines()
    assert acquired.split()[1:3] == ["acquired", "orders/1"]
    assert acquired.endswith("owner=worker-1 fencing_token=1")
    assert "Z owner" in acquired  # The end of the lease is a date.
    assert " put orders/1 version=1 etag=" in put
    assert released.endswith("released orders/1 owner=worker-1 fencing_token=1")
    assert deleted.endswith("delete orders/1 version=2")


def test_without_after_it_begins_now(server: TestServer) -> None:
    stop = threading.Event()

    def work() -> None:
        with Client(server.url) as other:
            while not stop.is_set():
                with other.acquire("live", namespace="billing"):
                    pass

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    result = client("watch", "-n", "billing", "--count", "2", "-o", "json")
    stop.set()
    worker.join()

    kinds = {json.loads(line)["type"] for line in result.stdout.splitlines()}
    assert (result.exit_code, kinds) == (0, {"acquired", "released"})


def test_what_is_refused_is_one_line() -> None:
    result = client("watch", "--after", str(1 << 50))

    assert result.exit_code == 1
    assert result.stderr.startswith("error: future_revision")


def test_the_help_has_examples() -> None:
    assert "holdfast client watch --prefix orders/" in client("watch", "--help").stdout
