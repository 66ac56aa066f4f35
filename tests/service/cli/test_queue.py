"""A shell that works with queues of a real plane."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Client
from holdfast.client.testing import TestServer

BIN = str(Path(sys.executable).parent)
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running:
        yield running


def environment(server: TestServer, folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "HOLDFAST_CLIENT_SERVER": server.url,
    }


def shell(server: TestServer, folder: Path, script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-euc", script],
        cwd=folder,
        env=environment(server, folder),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_a_transaction_of_a_shell_sends_its_messages_with_its_release(
    server: TestServer, tmp_path: Path
) -> None:
    script = """
    eval "$(holdfast client acquire --key sent-key)"
    holdfast queue enqueue -q sent --data one --txn-id "$HOLDFAST_CLIENT_TXN_ID" > /dev/null
    printf '%s\\n' two three | holdfast queue enqueue -q sent --lines - --txn-id "$HOLDFAST_CLIENT_TXN_ID"
    holdfast queue peek -q sent --output json
    holdfast client release > /dev/null
    holdfast queue subscribe -q sent --block nowait --exec 'cat; echo'
    """

    done = shell(server, tmp_path, script)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["enqueued=2", "[]", "one", "two", "three"]


def test_a_message_is_sent_taken_and_resolved(server: TestServer, tmp_path: Path) -> None:
    script = """
    holdfast queue enqueue -q life --data hello > /dev/null
    eval "$(holdfast queue dequeue -q life --stateful)"
    cat "$HOLDFAST_QUEUE_PAYLOAD_PATH"; echo
    holdfast queue extend --extend 45s | cut -d= -f1
    holdfast queue ack
    holdfast queue ack || echo "status $?"
    eval "$(holdfast client queue dequeue -q life --block nowait)"
    echo "${HOLDFAST_QUEUE_MESSAGE_ID-none}"
    """

    done = shell(server, tmp_path, script)

    assert done.stdout.splitlines() == ["hello", "lease_expires_at_unix", "acknowledged", "status 1", "none"]
    assert done.stderr.splitlines() == [
        "error: not_found (message already removed)",
        "no messages available (try again later)",
    ]


def test_commands_decide_about_their_messages(server: TestServer, tmp_path: Path) -> None:
    script = """
    printf '%s\\n' good bad good | holdfast queue enqueue -q work --lines - --max-attempts 1
    holdfast queue subscribe -q work --count 3 --exec 'read word; test "$word" = good' 2> /dev/null
    holdfast queue dlq list -q work --output json | grep -c message_id
    holdfast queue dlq redrive -q work --all
    holdfast queue dequeue -q work -o - 2> /dev/null
    """

    done = shell(server, tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["enqueued=3", "1", "redriven=1", "bad"]


def test_an_interrupted_subscribe_lets_its_command_finish(server: TestServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "go")
    with Client(server.url) as client:
        queue = client.queue("interrupted")
        queue.enqueue(b"x")
        command = "echo > begun; cat go > /dev/null; echo done > result"
        process = subprocess.Popen(
            [f"{BIN}/holdfast", "queue", "subscribe", "-q", "interrupted", "--exec", command],
            cwd=tmp_path,
            env=environment(server, tmp_path),
        )
        (tmp_path / "begun").read_bytes()

        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").write_bytes(b"\n")
        status = process.wait(TIMEOUT_S)
        stats = queue.stats()

    assert (status, (tmp_path / "result").read_text()) == (0, "done\n")
    assert (stats.is_available, stats.in_flight) == (False, 0)


def test_a_message_is_kept_while_its_command_runs(server: TestServer, tmp_path: Path) -> None:
    script = """
    holdfast queue enqueue -q slow --data x > /dev/null
    holdfast queue subscribe -q slow --block nowait --visibility 2s --exec 'sleep 4; echo once >> runs' 2> /dev/null
    cat runs
    """

    done = shell(server, tmp_path, script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "once\n", "")


def test_the_command_of_a_message_that_is_lost_gets_sigterm(server: TestServer, tmp_path: Path) -> None:
    script = """
    holdfast queue enqueue -q lost --data x > /dev/null
    holdfast queue subscribe -q lost --block nowait --visibility 2s \\
        --exec 'sleep 60 > /dev/null 2>&1 & child=$!; trap "echo told; kill $child; exit 1" TERM
                holdfast queue ack; wait $child'
    """

    done = shell(server, tmp_path, script)

    assert done.stdout.splitlines() == ["acknowledged", "told"]
