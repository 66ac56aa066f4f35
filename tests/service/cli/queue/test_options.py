"""The options of `holdfast queue`: where each one stands in the request, and when a purge asks."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from holdfast.cli.queue import dead_letters
from tests.infra.deliveries import STATE, delivered, parts
from tests.infra.fake_plane import FakePlane, fake_plane, reply

DEQUEUE = "/v1/queue/dequeue"
SUBSCRIBE = "/v1/queue/subscribe"
OWN = f"{socket.gethostname()}-{os.getpid()}"
MESSAGE = ["--message", "m", "--lease", "l"]
ACKED = reply(200, acked=True)
TAKEN: dict[str, tuple[list[str], str, dict[str, object]]] = {
    # What is called, where it goes, and the members that go along; None is left out.
    "owner": (["dequeue", "--owner", "me"], DEQUEUE, {"owner": "me"}),
    "no owner": (["dequeue"], DEQUEUE, {"owner": OWN}),
    "block": (["dequeue", "--block", "7s"], DEQUEUE, {"wait_seconds": 7}),
    "block forever": (["dequeue", "--block", "forever"], DEQUEUE, {"wait_seconds": 0}),
    "block 0": (["dequeue", "--block", "0"], DEQUEUE, {"wait_seconds": 0}),
    "nowait": (["dequeue", "--block", "nowait"], DEQUEUE, {"wait_seconds": -1}),
    "visibility": (["dequeue", "--visibility", "9s"], DEQUEUE, {"visibility_timeout_seconds": 9}),
    "no visibility": (["dequeue"], DEQUEUE, {"visibility_timeout_seconds": None}),
    "stateful": (["dequeue", "--stateful"], f"{DEQUEUE}WithState", {"queue": "jobs"}),
    "txn": (["dequeue", "--txn-id", "t"], DEQUEUE, {"txn_id": "t"}),
    "subscribe owner": (["subscribe", "--owner", "me"], SUBSCRIBE, {"owner": "me"}),
    "subscribe no owner": (["subscribe"], SUBSCRIBE, {"owner": OWN}),
    "prefetch": (["subscribe", "--prefetch", "8"], SUBSCRIBE, {"page_size": 8}),
    "subscribe visibility": (
        ["subscribe", "--visibility", "9s"],
        SUBSCRIBE,
        {"visibility_timeout_seconds": 9},
    ),
    "subscribe block": (["subscribe", "--block", "7s"], SUBSCRIBE, {"wait_seconds": 7}),
    "subscribe forever": (["subscribe"], SUBSCRIBE, {"wait_seconds": 0}),
    "subscribe nowait": (["subscribe", "--block", "nowait"], SUBSCRIBE, {"wait_seconds": -1}),
    "subscribe stateful": (["subscribe", "--stateful"], f"{SUBSCRIBE}WithState", {"queue": "jobs"}),
}


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePlane]:
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_QUEUE_", "LOCKD_QUEUE_", "HOLDFAST_CLIENT_", "LOCKD_CLIENT_")):
            monkeypatch.delenv(name)
    with fake_plane() as (running, url):
        monkeypatch.setenv("HOLDFAST_CLIENT_SERVER", url)
        yield running


def queue(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["queue", *arguments, "-q", "jobs"], input=text)


@pytest.mark.parametrize("case", TAKEN)
def test_an_option_of_a_consumer_goes_into_the_request(plane: FakePlane, case: str) -> None:
    (command, *options), path, expected = TAKEN[case]
    plane.then(path, reply(400, error="invalid_queue"))

    queue(command, *options)

    (request,) = plane.at(path)
    told = request.members()
    assert {name: told.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--delay", "5s"], {"delay_seconds": 5}),
        (["--priority", "-3"], {"priority": -3}),
        (["--ttl", "10m"], {"ttl_seconds": 600}),
        (["--max-attempts", "0"], {"max_attempts": None}),
        (["--txn-id", "t"], {"txn_id": "t"}),
        (
            [],
            {
                "delay_seconds": None,
                "priority": None,
                "ttl_seconds": None,
                "max_attempts": None,
                "txn_id": None,
            },
        ),
    ],
    ids=str,
)
def test_an_option_of_a_producer_goes_into_its_message(
    plane: FakePlane, tmp_path: Path, options: list[str], expected: dict[str, object]
) -> None:
    (tmp_path / "payload").write_bytes(b"from the file")
    plane.then("/v1/queue/enqueue", reply(200, message_id="m"))

    queue("enqueue", "--file", str(tmp_path / "payload"), *options)

    (request,) = plane.at("/v1/queue/enqueue")
    meta, payload = request.body.split(b"\r\n--")[:2]
    told = json.loads(meta.partition(b"\r\n\r\n")[2])
    assert {name: told.get(name) for name in expected} == expected
    assert payload.partition(b"\r\n\r\n")[2] == b"from the file"


def test_options_of_a_delivery_go_into_its_ack(plane: FakePlane) -> None:
    plane.then("/v1/queue/ack", ACKED)
    state = ["--state-lease", "sl", "--state-fencing-token", "8", "--state-etag", "se"]

    queue(
        *("ack", *MESSAGE, "--fencing-token", "7", "--meta-etag", "me", "--txn-id", "t", *state),
        *("--correlation-id", "c-1"),
    )

    (request,) = plane.at("/v1/queue/ack")
    assert request.members() == {
        "namespace": "default",
        "queue": "jobs",
        "message_id": "m",
        "lease_id": "l",
        "fencing_token": 7,
        "meta_etag": "me",
        "txn_id": "t",
        "state_lease_id": "sl",
        "state_fencing_token": 8,
        "state_etag": "se",
    }
    assert request.headers["x-correlation-id"] == "c-1"


def test_a_message_is_extended_while_its_command_runs(plane: FakePlane) -> None:
    plane.then(SUBSCRIBE, delivered(parts(visibility_timeout_seconds=1)), reply(409, error="waiting"))
    extended = reply(200, lease_expires_at_unix=4_000_000_000, visibility_timeout_seconds=1, meta_etag="m2")
    plane.then("/v1/queue/extend", *[extended] * 100)
    plane.then("/v1/queue/ack", ACKED)

    result = queue("subscribe", "--block", "nowait", "--visibility", "1s", "--exec", "sleep 3")

    assert result.exit_code == 0, result.output
    assert len(plane.at("/v1/queue/extend")) >= 1
    assert plane.at("/v1/queue/ack")[0].members()["meta_etag"] == "m2"


def test_a_command_of_a_message_with_state_has_its_lease(
    plane: FakePlane, capfd: pytest.CaptureFixture[str]
) -> None:
    plane.then(f"{SUBSCRIBE}WithState", delivered(parts(**STATE)), reply(409, error="waiting"))
    plane.then("/v1/queue/ack", ACKED)

    queue("subscribe", "--block", "nowait", "--stateful", "--exec", 'echo "$HOLDFAST_QUEUE_STATE_LEASE"')

    assert capfd.readouterr().out == f"{STATE['state_lease_id']}\n"


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_only_the_oldest_so_many_are_meant(plane: FakePlane, verb: str) -> None:
    path = f"/v1/queue/dlq/{verb}"
    plane.then(path, reply(200, redriven=2, purged=2))

    result = queue("dlq", verb, "--limit", "2", *(["--yes"] if verb == "purge" else []))

    assert result.exit_code == 0, result.output
    assert [request.members()["limit"] for request in plane.at(path)] == [2]


def always(stream: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "answer", "requests"), [([], "n\n", 0), ([], "y\n", 1), (["--yes"], "", 1)]
)
def test_a_purge_asks_on_a_terminal_unless_told_not_to(
    plane: FakePlane, monkeypatch: pytest.MonkeyPatch, options: list[str], answer: str, requests: int
) -> None:
    plane.then("/v1/queue/dlq/purge", reply(200, purged=1))
    monkeypatch.setattr(dead_letters, "is_terminal", always)

    result = queue("dlq", "purge", "m", *options, text=answer)

    assert ("Remove 1 dead letter of jobs for ever?" in result.output) is (options == [])
    assert len(plane.at("/v1/queue/dlq/purge")) == requests
