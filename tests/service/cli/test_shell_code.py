"""Commands whose output a shell evaluates: after a failure the shell fails too, and knows no older lease or message."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Client
from holdfast.client.testing import TestServer
from tests.service.client.shell import BIN, TIMEOUT_S

SHELLS = {
    os.path.realpath(found): name
    for name in ("dash", "bash", "zsh", "ksh", "sh")
    if (found := shutil.which(name))
}.values()  # Which are there differs from machine to machine; sh always is, often as another name of one of the others.

FAILURES = {
    "held": "holdfast client acquire --key held --block nowait",
    "invalid key": "holdfast client acquire --key 'no spaces'",
    "no such option": "holdfast client acquire --key a --no-such",
    "no such option for json": "holdfast client acquire --key json --owner=json --no-such",
    "wrong value": "holdfast client acquire --key a --ttl soon",
    "wrong format": "holdfast client acquire --key a --output xml",
    "no server": "holdfast client acquire --key a --server http://127.0.0.1:1 --retries 0 --block nowait",
    "missing bundle": "holdfast client acquire --key a --server https://127.0.0.1:1 --bundle /nonexistent",
}

USAGE = ("no such option", "no such option for json", "wrong value", "wrong format")


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running, Client(running.url) as client:
        client.acquire("held", ttl_s=1800)
        yield running


def run(
    server: TestServer, folder: Path, script: str, *, name: str = "sh", options: str = ""
) -> "subprocess.CompletedProcess[str]":
    variables = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "HOLDFAST_CLIENT_SERVER": server.url,
    }
    words = [name, *([options] if options else []), "-c", script]
    return subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_failed_acquire_fails_the_eval_and_forgets_the_older_lease(
    shell: str, server: TestServer, tmp_path: Path
) -> None:
    script = f"""
    eval "$(holdfast client acquire --key older-{shell})"
    export LOCKD_CLIENT_LEASE=of-lockd
    eval "$({FAILURES["held"]})"
    echo "status $?"
    env | grep -E '_CLIENT_(LEASE|KEY|FENCING_TOKEN|TXN_ID|VERSION|ETAG|EXPIRES_UNIX)='
    echo '{{}}' | holdfast client update
    echo "status $?"
    echo "$HOLDFAST_CLIENT_SERVER"
    """

    done = run(server, tmp_path, script, name=shell)

    assert done.stdout.splitlines() == ["status 1", "status 1", server.url]
    assert done.stderr.splitlines() == [
        "error: waiting (lease already held)",
        "error: no key: give --key, or set HOLDFAST_CLIENT_KEY",
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_failed_acquire_ends_a_script_that_ends_on_errors(
    shell: str, server: TestServer, tmp_path: Path
) -> None:
    done = run(server, tmp_path, f'eval "$({FAILURES["held"]})"\necho went on', name=shell, options="-eu")

    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("failure", FAILURES)
def test_every_kind_of_failure_is_seen_by_the_shell(failure: str, server: TestServer, tmp_path: Path) -> None:
    script = f"""
    export HOLDFAST_CLIENT_LEASE=older HOLDFAST_CLIENT_KEY=older
    {FAILURES[failure]} > code; status=$?
    eval "$(cat code)" && echo went on
    echo "$? $status ${{HOLDFAST_CLIENT_LEASE-none}} ${{HOLDFAST_CLIENT_KEY-none}}"
    """

    done = run(server, tmp_path, script)

    status = "2" if failure in USAGE else "1"
    assert done.stdout == f"{status} {status} none none\n"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_acquire_that_a_signal_ends_is_seen_by_the_shell(
    number: signal.Signals, server: TestServer, tmp_path: Path
) -> None:
    script = f"""
    export HOLDFAST_CLIENT_LEASE=older
    eval "$(timeout -s {number.name.removeprefix("SIG")} 8 holdfast client acquire --key held --block forever)"
    echo "status $? ${{HOLDFAST_CLIENT_LEASE-none}}"
    """

    done = run(server, tmp_path, script)

    assert done.stdout == f"status {128 + number} none\n"


def test_json_has_no_shell_code_in_it(server: TestServer, tmp_path: Path) -> None:
    done = run(
        server, tmp_path, f"{FAILURES['held']} --output json; {FAILURES['held']} --output json --no-such"
    )

    assert done.stdout == ""


def test_help_is_no_failure(server: TestServer, tmp_path: Path) -> None:
    done = run(server, tmp_path, "holdfast client acquire --help")

    assert done.returncode == 0
    assert "unset" not in done.stdout


def test_a_failed_dequeue_fails_the_eval_and_forgets_the_older_message(
    server: TestServer, tmp_path: Path
) -> None:
    script = """
    holdfast queue enqueue -q jobs --data one > /dev/null
    eval "$(holdfast queue dequeue -q jobs)"
    eval "$(holdfast queue dequeue -q 'no spaces' --block nowait)" && echo went on
    echo "status $?"
    env | grep -E '_QUEUE_(MESSAGE_ID|LEASE|FENCING_TOKEN|META_ETAG|PAYLOAD_PATH|TXN_ID|STATE_LEASE)='
    holdfast queue ack -q jobs
    echo "status $?"
    """

    done = run(server, tmp_path, script)

    assert done.stdout.splitlines() == ["status 1", "status 1"]
    assert done.stderr.splitlines()[-1].startswith("error: no message: ")


def test_a_dequeue_without_a_message_leaves_none_of_the_older_one(server: TestServer, tmp_path: Path) -> None:
    script = """
    holdfast queue enqueue -q last --data one > /dev/null
    eval "$(holdfast queue dequeue -q last --stateful)"
    holdfast queue ack > /dev/null
    eval "$(holdfast queue dequeue -q last --block nowait)"
    echo "status $? message ${HOLDFAST_QUEUE_MESSAGE_ID-none} ${HOLDFAST_QUEUE_STATE_LEASE-none}"
    """

    assert run(server, tmp_path, script).stdout == "status 0 message none none\n"


def test_what_a_new_message_does_not_have_is_not_that_of_the_older_one(
    server: TestServer, tmp_path: Path
) -> None:
    script = """
    holdfast queue enqueue -q both --data one > /dev/null
    holdfast queue enqueue -q both --data two > /dev/null
    eval "$(holdfast queue dequeue -q both --stateful)"
    eval "$(holdfast queue dequeue -q both)"
    echo "${HOLDFAST_QUEUE_STATE_LEASE-none} ${HOLDFAST_QUEUE_STATE_FENCING_TOKEN-none}"
    holdfast queue ack
    """

    assert run(server, tmp_path, script).stdout == "none none\nacknowledged\n"


def test_a_failed_extend_fails_the_eval(server: TestServer, tmp_path: Path) -> None:
    script = """
    holdfast queue enqueue -q long --data one > /dev/null
    eval "$(holdfast queue dequeue -q long)"
    holdfast queue ack > /dev/null
    eval "$(holdfast queue extend --export)" && echo went on
    echo "status $? ${HOLDFAST_QUEUE_META_ETAG-none}"
    holdfast queue extend
    """

    assert run(server, tmp_path, script).stdout == "status 1 none\n"


@pytest.mark.parametrize("words", ["--output json", "--output=json", "-o json", "-ojson"])
def test_who_reads_json_gets_no_shell_code_of_a_failure(
    words: str, server: TestServer, tmp_path: Path
) -> None:
    done = run(server, tmp_path, f"holdfast client acquire --key a {words} --no-such")

    assert (done.returncode, done.stdout) == (2, "")
