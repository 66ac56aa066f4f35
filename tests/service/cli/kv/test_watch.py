"""`holdfast kv watch`: changes of keys, and what ends it."""

import json
import os
import signal
import subprocess

import pytest

from holdfast.client import Client
from tests.infra.fake_plane import FakePlane, Reply
from tests.service.cli.kv.commands import PROGRAM, filled, kv


def test_watch_prints_what_happened_to_keys(client: Client) -> None:
    revision = filled(client) + 1
    client.kv.delete("k/a")

    plain = kv("watch", "k/", "--prefix", "--rev", str(revision), "--count", "4").stdout
    previous = kv("watch", "k/a", "--rev", str(revision + 2), "--prev-kv", "--count", "1").stdout
    ranged = kv("watch", "k/a", "k/b", "--rev", str(revision), "--count", "2").stdout
    rest = kv("watch", "k/b", "--from-key", "--rev", str(revision), "--count", "2").stdout

    assert plain == "PUT\nk/c\n3\nPUT\nk/a\n1\nPUT\nk/b\n2\nDELETE\nk/a\n\n"
    assert previous == "DELETE\nk/a\n1\nk/a\n\n"
    assert ranged == "PUT\nk/a\n1\nDELETE\nk/a\n\n"
    assert rest == "PUT\nk/c\n3\nPUT\nk/b\n2\n"


def test_watch_prints_json_a_line_for_each_change(client: Client) -> None:
    revision = client.kv.put("a", "1").revision
    client.kv.delete("a")

    text = kv("watch", "a", "--rev", str(revision), "--count", "2", "--prev-kv", "--output", "json").stdout

    put, deleted = (json.loads(line) for line in text.splitlines())
    assert put == {
        "type": "PUT",
        "kv": {
            "key": "YQ==",
            "create_revision": revision,
            "mod_revision": revision,
            "version": 1,
            "value": "MQ==",
        },
    }
    assert (deleted["type"], deleted["prev_kv"]) == ("DELETE", put["kv"])


def test_watch_begins_with_this_moment_and_ends_when_it_is_interrupted(client: Client) -> None:
    client.kv.put("a", "before")
    with subprocess.Popen(
        [*PROGRAM, "watch", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stdout.fileno(), False)
        lines = b""
        number = 0
        while not lines:  # When it is there is seen by what it prints.
            number += 1
            client.kv.put("a", str(number))
            lines = process.stdout.read() or b""
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert lines.startswith(b"PUT\na\n")
    assert b"before" not in lines
    assert (process.returncode, said) == (130, b"interrupted\n")


def test_watch_fails_when_what_would_be_next_was_compacted(client: Client) -> None:
    revision = filled(client)
    compacted = kv("compact", str(revision + 2))

    result = kv("watch", "k/", "--prefix", "--rev", str(revision + 1))

    assert compacted.stdout == f"compacted revision {revision + 2}\n"
    assert result.exit_code == 1
    assert result.stderr.startswith("error: etcdserver: mvcc: required revision has been compacted")


@pytest.mark.parametrize(
    ("output", "first"),
    [("text", "progress notify: 7"), ("json", '{"type":"PROGRESS","revision":7}')],
)
def test_watch_says_how_far_it_is_when_nothing_happens(plane: FakePlane, output: str, first: str) -> None:
    """A real server says so once in a minute."""
    messages: list[dict[str, object]] = [
        {"header": {"revision": "5"}, "created": True},
        {"header": {"revision": "7"}},
        {"header": {"revision": "8"}, "events": [{"kv": {"key": "YQ==", "mod_revision": "8"}}]},
    ]
    lines = [json.dumps({"result": message}) for message in messages]
    plane.then("/v3/watch", Reply(200, "\n".join([*lines, ""]).encode()))

    printed = kv("watch", "a", "--progress-notify", "--count", "1", "--output", output).stdout

    assert printed.splitlines()[0] == first
    assert plane.at("/v3/watch")[0].members() == {"create_request": {"key": "YQ==", "progress_notify": True}}
