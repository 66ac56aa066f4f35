"""`holdfast queue` against a fake plane: what it sends, and what it prints to the letter."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from holdfast.cli.queue.print import moment, shown, table
from tests.infra.deliveries import MESSAGE_ID, STATE, delivered, parts
from tests.infra.fake_plane import FakePlane, Reply, fake_plane, reply

ENQUEUE = "/v1/queue/enqueue"
DEQUEUE = "/v1/queue/dequeue"
SENT: dict[str, Any] = {
    "namespace": "default",
    "queue": "orders",
    "message_id": MESSAGE_ID,
    "attempts": 0,
    "max_attempts": 5,
}
STORED: dict[str, Any] = {
    **SENT,
    "enqueued_at_unix": 1_794_789_173,
    "payload_content_type": "text/plain",
    "payload_bytes": 2,
    "correlation_id": "c",
}


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakePlane]:
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_QUEUE_", "LOCKD_QUEUE_", "HOLDFAST_CLIENT_", "LOCKD_CLIENT_")):
            monkeypatch.delenv(name)
    with fake_plane() as (running, url):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setenv("HOLDFAST_CLIENT_SERVER", url)
        monkeypatch.chdir(tmp_path)
        yield running


@pytest.fixture
def taken(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> FakePlane:
    """A shell that has evaluated what dequeue printed."""
    plane.then(DEQUEUE, delivered())
    for line in queue("dequeue", "-q", "orders").stdout.splitlines():
        name, _, value = shlex.split(line)[1].partition("=")
        monkeypatch.setenv(name, value)
    return plane


def queue(*arguments: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["queue", *arguments], input=text)


def test_enqueue_sends_what_the_options_say(plane: FakePlane) -> None:
    plane.then(ENQUEUE, reply(200, **SENT))

    result = queue(
        *("enqueue", "-q", "orders", "--data", '{"op":"ship"}', "--content-type", "application/json"),
        *(
            "--attr",
            "tenant=acme",
            "--attr",
            "x=a=b",
            "--max-attempts",
            "3",
            "--visibility",
            "45s",
            "--ttl",
            "10m",
        ),
    )

    body = plane.at(ENQUEUE)[0].body
    assert result.stdout == f"message_id={MESSAGE_ID} attempts=0 max_attempts=5\n"
    assert b'{"op":"ship"}\r\n--' in body
    assert json.loads(body.split(b"\r\n\r\n")[1].split(b"\n\r\n--")[0].split(b"\n")[0]) == {
        "namespace": "default",
        "queue": "orders",
        "visibility_timeout_seconds": 45,
        "ttl_seconds": 600,
        "max_attempts": 3,
        "attributes": {"tenant": "acme", "x": "a=b"},
        "payload_content_type": "application/json",
    }


@pytest.mark.parametrize("arguments", [[], ["-"], ["--file", "-"]])
def test_enqueue_reads_standard_input(plane: FakePlane, arguments: list[str]) -> None:
    plane.then(ENQUEUE, reply(200, **SENT))

    result = queue("enqueue", "-q", "orders", *arguments, "--output", "json", text=b"\x00\xff")

    assert json.loads(result.stdout) == SENT
    assert b"\r\n\r\n\x00\xff\r\n--" in plane.at(ENQUEUE)[0].body


def test_enqueue_sends_a_message_for_each_line(plane: FakePlane, tmp_path: Path) -> None:
    (tmp_path / "urls").write_bytes(b"one\r\n\ntwo\nthree")
    path = "/v1/queue/enqueueBatch"
    plane.then(path, reply(200, messages=[{"message_id": f"m{n}"} for n in range(3)]))

    result = queue("enqueue", "-q", "urls", "--lines", "urls", "--priority", "2")

    body = plane.at(path)[0].body
    assert result.stdout == "enqueued=3\n"
    assert [word in body for word in (b"\r\none\r\n", b"\r\ntwo\r\n", b"\r\nthree\r\n", b'"priority":2')] == [
        True
    ] * 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "x", "--file", "y"],
        ["--lines", "x", "-"],
        ["stray"],
        ["--data", "x", "--attr", "novalue"],
        ["--data", "x", "--delay", "soon"],
    ],
)
def test_enqueue_refuses_what_makes_no_sense(plane: FakePlane, arguments: list[str]) -> None:
    result = queue("enqueue", "-q", "orders", *arguments)

    assert result.exit_code == 2
    assert plane.seen == []


def test_a_command_without_a_queue_says_how_to_name_one(plane: FakePlane) -> None:
    result = queue("stats")

    assert (result.exit_code, result.stderr) == (
        1,
        "error: no queue: give --queue, or set HOLDFAST_QUEUE_NAME\n",
    )


def test_dequeue_prints_exports_in_their_order(plane: FakePlane) -> None:
    plane.then("/v1/queue/dequeueWithState", delivered(parts(**STATE)))

    result = queue(
        *("dequeue", "-q", "orders", "--owner", "me", "--block", "5s", "--visibility", "20s", "--stateful"),
        *("-o", "payload", "--page-size", "32", "--start-after", "x"),
    )

    assert result.stdout.splitlines() == [
        'export HOLDFAST_QUEUE_NAMESPACE="default"',
        'export HOLDFAST_QUEUE_NAME="orders"',
        f'export HOLDFAST_QUEUE_MESSAGE_ID="{MESSAGE_ID}"',
        'export HOLDFAST_QUEUE_LEASE="dbt4ud9ksducbc8b3la0"',
        'export HOLDFAST_QUEUE_FENCING_TOKEN="1"',
        'export HOLDFAST_QUEUE_META_ETAG="m1"',
        'export HOLDFAST_QUEUE_PAYLOAD_PATH="payload"',
        'export HOLDFAST_QUEUE_TXN_ID="dbt4ud9ksducbc8b3lag"',
        'export HOLDFAST_QUEUE_CORRELATION_ID="req-4711"',
        'export HOLDFAST_QUEUE_STATE_LEASE="dbt4ue9ksducbc8b3lg0"',
        'export HOLDFAST_QUEUE_STATE_FENCING_TOKEN="1"',
        'export HOLDFAST_QUEUE_STATE_ETAG="s1"',
    ]
    assert Path("payload").read_bytes() == b'{"op":"ship"}'
    asked = plane.seen[0].members()
    assert (asked["owner"], asked["wait_seconds"], asked["visibility_timeout_seconds"]) == ("me", 5, 20)


@pytest.mark.parametrize(
    ("options", "wait_seconds"),
    [((), 30), (("--block", "5s"), 5), (("--block", "nowait"), -1), (("--block", "forever"), 0)],
)
def test_dequeue_waits_as_told_and_30_seconds_by_default(
    options: tuple[str, ...], wait_seconds: int, plane: FakePlane
) -> None:
    plane.then(DEQUEUE, delivered())

    queue("dequeue", "-q", "orders", *options)

    assert plane.seen[0].members().get("wait_seconds", 0) == wait_seconds


def test_dequeue_makes_a_file_for_the_payload(plane: FakePlane) -> None:
    plane.then(DEQUEUE, delivered())

    result = queue("dequeue", "-q", "orders", "--output", "json")

    members = json.loads(result.stdout)
    assert members["message_id"] == MESSAGE_ID
    assert Path(members["payload_path"]).read_bytes() == b'{"op":"ship"}'


def test_dequeue_writes_the_payload_to_standard_output(plane: FakePlane) -> None:
    plane.then(DEQUEUE, delivered(parts(b"\x00\xff")))

    result = queue("dequeue", "-q", "orders", "-o", "-")

    assert result.stdout_bytes == b"\x00\xff"
    assert result.stderr.startswith('export HOLDFAST_QUEUE_NAMESPACE="default"\n')
    assert "PAYLOAD_PATH" not in result.stderr


def test_an_empty_queue_is_no_error(plane: FakePlane) -> None:
    plane.then(DEQUEUE, reply(409, error="waiting", detail="no messages available"))

    result = queue("dequeue", "-q", "orders", "--block", "nowait")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no messages available (try again later)\n"


def test_a_payload_that_can_not_be_written_gives_the_message_back(plane: FakePlane) -> None:
    plane.then(DEQUEUE, delivered())
    plane.then("/v1/queue/nack", reply(200, requeued=True, meta_etag="m2"))

    result = queue("dequeue", "-q", "orders", "-o", "no/such/folder/file")

    assert result.exit_code == 1
    assert plane.at("/v1/queue/nack")[0].members()["intent"] == "defer"


def test_ack_nack_and_extend_read_what_dequeue_exported(taken: FakePlane) -> None:
    taken.then("/v1/queue/ack", reply(200, acked=True))
    taken.then("/v1/queue/nack", reply(200, requeued=True, meta_etag="m2"))
    extended = reply(200, lease_expires_at_unix=1_794_789_213, visibility_timeout_seconds=45, meta_etag="m2")
    taken.then("/v1/queue/extend", extended, extended)

    printed = [
        queue("extend", "--extend", "45s").stdout,
        queue("extend", "--export").stdout,
        queue("nack", "--delay", "2s", "--reason", "upstream").stdout,
        queue("ack").stdout,
    ]

    assert printed == [
        "lease_expires_at_unix=1794789213 visibility_timeout_seconds=45\n",
        'export HOLDFAST_QUEUE_META_ETAG="m2"\n',
        "requeued\n",
        "acknowledged\n",
    ]
    told = taken.at("/v1/queue/nack")[0].members()
    assert (told["delay_seconds"], told["last_error"]) == (2, {"detail": "upstream"})
    assert {request.members()["lease_id"] for request in taken.seen[1:]} == {"dbt4ud9ksducbc8b3la0"}
    assert taken.at("/v1/queue/ack")[0].headers["x-correlation-id"] == "req-4711"


def test_variables_of_lockd_are_understood(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NAME", "orders"), ("MESSAGE_ID", "m"), ("LEASE", "l"), ("FENCING_TOKEN", "7")):
        monkeypatch.setenv(f"LOCKD_QUEUE_{name}", value)
    plane.then("/v1/queue/ack", reply(200, acked=True))

    result = CliRunner().invoke(app, ["client", "queue", "ack", "--output", "json"])

    assert json.loads(result.stdout) == {"acked": True, "message_id": "m"}
    assert plane.seen[0].members()["fencing_token"] == 7


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["ack", "-q", "orders"], 1, "give --message"),
        (["ack", "-q", "orders", "--message", "m"], 1, "give --lease"),
        (["ack", "-q", "o", "--message", "m", "--lease", "l", "--fencing-token", "x"], 2, "no number"),
        (["nack", "-q", "o", "--message", "m", "--lease", "l", "--intent", "maybe"], 2, "failure or defer"),
        (["dlq", "redrive", "-q", "orders"], 2, "which ones"),
        (["dlq", "purge", "-q", "orders", "--all"], 2, "--yes"),
        (["policy", "set", "-q", "orders"], 2, "nothing to set"),
    ],
)
def test_what_is_missing_is_named(plane: FakePlane, arguments: list[str], status: int, words: str) -> None:
    result = queue(*arguments)

    assert (result.exit_code, plane.seen) == (status, [])
    assert words in result.stderr


def test_an_error_of_the_server_is_one_line(taken: FakePlane) -> None:
    taken.then("/v1/queue/ack", reply(404, error="not_found", detail="message already removed"))

    result = queue("ack")

    assert (result.exit_code, result.stderr) == (1, "error: not_found (message already removed)\n")


def test_peek_and_dead_letters_are_tables(plane: FakePlane) -> None:
    dead = {**STORED, "dead_at_unix": 1_794_789_200, "last_error": {"reason": "max_attempts_exceeded"}}
    plane.then("/v1/queue/peek", reply(200, messages=[{**STORED, "payload_base64": "aGk="}]))
    plane.then("/v1/queue/dlq/list", reply(200, messages=[dead]), reply(200, messages=[dead]))

    peeked = queue("peek", "-q", "orders", "--payloads").stdout.splitlines()
    listed = queue("dlq", "list", "-q", "orders").stdout.splitlines()
    as_json = json.loads(queue("dlq", "list", "-q", "orders", "--output", "json").stdout)

    assert peeked[0].split() == ["MESSAGE", "ATTEMPTS", "ENQUEUED", "BYTES", "TYPE", "PAYLOAD"]
    assert peeked[1].split() == [MESSAGE_ID, "0/5", "2026-11-16T00:32:53Z", "2", "text/plain", "hi"]
    assert listed[1].endswith('2026-11-16T00:33:20Z  {"reason":"max_attempts_exceeded"}')
    assert as_json == [dead]


def test_dead_letters_are_moved_batch_by_batch(plane: FakePlane) -> None:
    plane.then("/v1/queue/dlq/redrive", reply(200, redriven=1000), reply(200, redriven=7))
    plane.then("/v1/queue/dlq/purge", reply(200, purged=2))

    redriven = queue("dlq", "redrive", "-q", "orders", "--all").stdout
    purged = queue("dlq", "purge", "-q", "orders", "a", "b", "--yes", "--output", "json").stdout

    assert (redriven, json.loads(purged)) == ("redriven=1007\n", {"purged": 2})
    assert plane.at("/v1/queue/dlq/purge")[0].members()["message_ids"] == ["a", "b"]


def test_policy_is_set_shown_and_paused(plane: FakePlane) -> None:
    policy: dict[str, Any] = {
        "queue": "orders",
        "max_attempts": 3,
        "deliveries_per_second": 1.5,
        "paused": False,
    }
    plane.then("/v1/queue/policy", reply(200, **policy), reply(200, **policy))
    plane.then("/v1/queue/pause", reply(200, paused=True))

    changed = queue("policy", "set", "-q", "orders", "--max-attempts", "3", "--rate", "1.5", "--ttl", "0s")
    got = queue("policy", "get", "-q", "orders", "--output", "json")
    paused = queue("pause", "-q", "orders")

    assert plane.at("/v1/queue/policy")[0].members() == {
        "namespace": "default",
        "queue": "orders",
        "max_attempts": 3,
        "deliveries_per_second": 1.5,
        "ttl_seconds": 0,
    }
    assert "max_attempts: 3\n" in changed.stdout
    assert json.loads(got.stdout) == policy
    assert "paused: true" in paused.stdout


def test_subscribe_prints_and_acks(plane: FakePlane) -> None:
    plane.then("/v1/queue/subscribe", delivered(parts(b"one"), parts(b"\xff")), reply(409, error="waiting"))
    plane.then("/v1/queue/subscribe", delivered(parts(b"one")), reply(409, error="waiting"))
    plane.then("/v1/queue/ack", *[reply(200, acked=True) for _ in range(3)])

    text = queue("subscribe", "-q", "orders", "--block", "nowait")
    as_json = queue("subscribe", "-q", "orders", "--block", "nowait", "--output", "json")

    line = f"message_id={MESSAGE_ID} attempts=1 max_attempts=3 payload_bytes="
    assert text.stdout_bytes == f"{line}3\none\n{line}1\n".encode() + b"\xff\n"
    assert json.loads(as_json.stdout)["payload"] == "one"
    assert len(plane.at("/v1/queue/ack")) == 3


def test_subscribe_runs_a_command_for_each_message(plane: FakePlane, tmp_path: Path) -> None:
    plane.then("/v1/queue/subscribe", delivered(parts(b"good"), parts(b"bad")), reply(409, error="waiting"))
    plane.then("/v1/queue/ack", reply(200, acked=True))
    plane.then("/v1/queue/nack", reply(200, requeued=True, meta_etag="m2"))
    command = 'read word; echo "$word $HOLDFAST_QUEUE_MESSAGE_ID" >> seen; test "$word" = good || exit 3'

    result = queue("subscribe", "-q", "orders", "--block", "nowait", "--exec", command, "--retry-delay", "9s")

    told = plane.at("/v1/queue/nack")[0].members()
    assert result.exit_code == 0
    assert (tmp_path / "seen").read_text() == f"good {MESSAGE_ID}\nbad {MESSAGE_ID}\n"
    assert (told["delay_seconds"], told["last_error"]) == (9, {"detail": "exit status 3"})
    assert [line.split()[1:] for line in result.stderr.splitlines()] == [
        ["status=0", "outcome=acknowledged"],
        ["status=3", "outcome=requeued"],
    ]


def test_subscribe_ends_after_so_many(plane: FakePlane) -> None:
    plane.then("/v1/queue/subscribe", delivered(parts(b"one"), parts(b"two")))
    plane.then("/v1/queue/ack", reply(200, acked=True))
    plane.then("/v1/queue/nack", reply(200, requeued=True, meta_etag="m2"))

    result = queue("subscribe", "-q", "orders", "--count", "1")

    assert (result.exit_code, "one\n" in result.stdout, "two" in result.stdout) == (0, True, False)


def test_watch_prints_a_line_for_each_change(plane: FakePlane) -> None:
    event = b'event: queue_watch\ndata: {"queue":"orders","available":true,"head_message_id":"m","changed_at_unix":7}\n\n'
    stats: dict[str, Any] = {"queue": "orders", "waiting_consumers": 2, "in_flight": 1, "available": True}
    for _ in range(2):
        plane.then("/v1/queue/watch", Reply(200, event, {"Content-Type": "text/event-stream"}))
        plane.then("/v1/queue/stats", reply(200, **stats))

    text = queue("watch", "orders", "--count", "1")
    as_json = queue("watch", "-q", "orders", "--count", "1", "--output", "json")

    assert text.stdout == "1970-01-01T00:00:07Z queue=orders available=true head=m waiting=2 in_flight=1\n"
    assert json.loads(as_json.stdout)["head_message_id"] == "m"


def test_watch_ends_with_the_error_of_the_server(plane: FakePlane) -> None:
    plane.then("/v1/queue/watch", reply(400, error="invalid_queue", detail="no such name"))

    result = queue("watch", "Bad Name")

    assert (result.exit_code, result.stderr) == (1, "error: invalid_queue (no such name)\n")


def test_what_a_server_says_does_not_move_the_cursor() -> None:
    assert table(["A", "B"], [["x\x1b[2J", 1]]) == "A         B\nx\\x1b[2J  1"
    assert shown(b"\xff") == {"payload_base64": "/w=="}
    assert (moment(0), moment(10**18)) == ("-", str(10**18))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["enqueue"],
        ["dequeue"],
        ["ack"],
        ["nack"],
        ["extend"],
        ["subscribe"],
        ["stats"],
        ["peek"],
        ["watch"],
        ["dlq", "list"],
        ["dlq", "redrive"],
        ["dlq", "purge"],
        ["pause"],
        ["resume"],
        ["policy", "get"],
        ["policy", "set"],
    ],
)
def test_every_command_has_help_with_an_example(words: list[str]) -> None:
    result = queue(*words, "--help")

    assert result.exit_code == 0
    assert "Example" in result.stdout
