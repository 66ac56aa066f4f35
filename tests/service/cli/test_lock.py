"""`holdfast lock` as a process: exit codes, signals, the environment of the command, and a lease that is lost."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.infra.fake_plane import FakePlane, fake_plane

PROGRAM = str(Path(sys.executable).with_name("holdfast"))
TIMEOUT_S = 60


@pytest.fixture
def served() -> Iterator[tuple[FakePlane, str]]:
    with fake_plane() as running:
        yield running


@contextmanager
def locking(url: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A running `holdfast lock`; killed when the test is done with it."""
    process = subprocess.Popen(
        [PROGRAM, "lock", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "HOLDFAST_CLIENT_SERVER": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run(url: str, *arguments: str) -> tuple[int, str, str]:
    with locking(url, *arguments) as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output, errors


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_command_runs_under_the_lease_and_its_status_is_passed_on(served: tuple[FakePlane, str]) -> None:
    plane, url = served

    status, output, errors = run(
        url, "job", "--ttl", "45s", "--", "sh", "-c", 'echo "$HOLDFAST_CLIENT_KEY"; exit 3'
    )

    assert (status, output, errors) == (3, "job\n", "")
    assert plane.at("/v1/acquire")[0].members()["ttl_seconds"] == 45
    assert plane.at("/v1/release")[0].members()["rollback"] is True


def test_a_command_that_succeeds_commits_what_it_staged(served: tuple[FakePlane, str]) -> None:
    plane, url = served
    staging = f"echo '{{\"n\":1}}' | {PROGRAM} client update"

    status, _, errors = run(url, "job", "--", "sh", "-c", staging)

    assert (status, errors) == (0, "")
    assert plane.keys["job"].document == b'{"n":1}\n'
    assert plane.keys["job"].holder is None


def test_a_key_that_is_held_is_status_75_and_the_command_does_not_run(served: tuple[FakePlane, str]) -> None:
    plane, url = served

    with locking(url, "job", "--", "sh", "-c", "echo ready; exec sleep 600") as first:
        assert first_line(first) == "ready"
        second = run(url, "job", "--wait", "nowait", "--", "echo", "ran")
        first.send_signal(signal.SIGTERM)
        first.wait(TIMEOUT_S)

    assert second == (75, "", "error: waiting (lease already held)\n")
    assert plane.keys["job"].holder is None


def test_a_command_that_is_not_there_or_not_executable(served: tuple[FakePlane, str], tmp_path: Path) -> None:
    plane, url = served
    (tmp_path / "plain").touch()

    absent = run(url, "job", "--", "no-such-command")
    plain = run(url, "job", "--", str(tmp_path / "plain"))

    assert (absent[0], plain[0]) == (127, 126)
    assert plane.keys["job"].holder is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(served: tuple[FakePlane, str], number: signal.Signals) -> None:
    _, url = served
    script = (
        f"trap 'echo got; exit 7' {number.name.removeprefix('SIG')}; echo ready; while :; do sleep 0.1; done"
    )

    with locking(url, "job", "--", "sh", "-c", script) as process:
        assert first_line(process) == "ready"
        process.send_signal(number)
        output, _ = process.communicate(timeout=TIMEOUT_S)

    assert (process.returncode, output) == (7, "got\n")


def test_a_command_that_dies_of_a_signal_ends_as_in_a_shell(served: tuple[FakePlane, str]) -> None:
    _, url = served

    assert run(url, "job", "--", "sh", "-c", "kill -KILL $$")[0] == 137


def test_a_signal_while_waiting_for_the_key_ends_the_wait(served: tuple[FakePlane, str]) -> None:
    plane, url = served

    with locking(url, "job", "--", "sh", "-c", "echo ready; exec sleep 600") as holder:
        assert first_line(holder) == "ready"
        with locking(url, "job", "--wait", "forever", "--", "echo", "ran") as waiter:
            plane.wait_for("/v1/acquire", 2)
            waiter.send_signal(signal.SIGTERM)
            output, _ = waiter.communicate(timeout=TIMEOUT_S)
        holder.send_signal(signal.SIGTERM)
        holder.wait(TIMEOUT_S)

    assert (waiter.returncode, output) == (143, "")


def test_a_lost_lease_stops_the_command_and_what_it_started(served: tuple[FakePlane, str]) -> None:
    plane, url = served
    # The shell ignores SIGTERM and waits for a child: only SIGKILL to the whole group ends both.
    script = "trap '' TERM; echo ready; sleep 600"

    with locking(url, "job", "--ttl", "1s", "--grace", "200ms", "--", "sh", "-c", script) as process:
        assert first_line(process) == "ready"
        plane.keys["job"].holder = None
        output, errors = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 76
    assert errors == "error: lease_required (active lease required); the command is stopped\n"
    assert output == ""


def test_a_command_that_obeys_is_not_killed(served: tuple[FakePlane, str]) -> None:
    plane, url = served
    script = "trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.1; done"

    with locking(url, "job", "--ttl", "1s", "--grace", "60s", "--", "sh", "-c", script) as process:
        assert first_line(process) == "ready"
        plane.keys["job"].holder = None
        output, _ = process.communicate(timeout=TIMEOUT_S)

    assert (process.returncode, output) == (76, "cleaned up\n")


def test_a_server_that_stops_does_not_take_the_lease_away(served: tuple[FakePlane, str]) -> None:
    plane, url = served

    with locking(url, "job", "--ttl", "1s", "--", "sh", "-c", "echo ready; exec sleep 600") as process:
        assert first_line(process) == "ready"
        plane.is_draining = True
        plane.wait_for("/v1/keepalive", 3)
        released = plane.at("/v1/release")
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)

    assert released == []


def is_running(pid: int) -> bool:
    """A process that has ended and waits for its parent to ask is gone, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while is_running(pid):
        if time.monotonic() > deadline_s:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"process {pid} outlived its lock")
        time.sleep(0.02)


@pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel of Linux tells a child that its parent is gone"
)
def test_the_command_does_not_outlive_a_lock_that_is_killed(served: tuple[FakePlane, str]) -> None:
    _, url = served
    # It ignores what can be ignored.
    script = "trap '' TERM HUP INT; echo $$; while :; do sleep 1; done"

    with locking(url, "job", "--", "sh", "-c", script) as process:
        pid = int(first_line(process))
        assert is_running(pid)
        process.kill()
        process.wait(TIMEOUT_S)
        until_gone(pid)


@pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel of Linux tells a child that its parent is gone"
)
def test_what_the_command_started_does_not_outlive_a_lock_that_is_killed(
    served: tuple[FakePlane, str],
) -> None:
    _, url = served
    script = "sleep 600 & echo $!; sleep 600 & echo $!; wait"

    with locking(url, "job", "--", "sh", "-c", script) as process:
        pids = [int(first_line(process)) for _ in range(2)]
        assert all(map(is_running, pids))
        process.kill()
        process.wait(TIMEOUT_S)
        for pid in pids:
            until_gone(pid)


def test_what_the_command_leaves_behind_when_it_ends_goes_on(served: tuple[FakePlane, str]) -> None:
    _, url = served

    status, output, _ = run(url, "job", "--", "sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!")

    pid = int(output)
    assert (status, is_running(pid)) == (0, True)
    os.kill(pid, signal.SIGKILL)


def test_the_output_of_a_lock_ends_with_the_command(served: tuple[FakePlane, str]) -> None:
    """Nothing that watches over the command keeps its pipes open."""
    _, url = served

    with locking(url, "job", "--", "sh", "-c", "echo $PPID") as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)

    assert int(output) == process.pid


def test_the_owner_is_the_option_else_host_name_and_pid(served: tuple[FakePlane, str]) -> None:
    plane, url = served

    run(url, "job", "--owner", "me", "--", "true")
    with locking(url, "job", "--", "true") as process:
        process.wait(TIMEOUT_S)

    owners = [request.members()["owner"] for request in plane.at("/v1/acquire")]
    assert owners == ["me", f"{socket.gethostname()}-{process.pid}"]


@pytest.mark.skipif(sys.platform != "linux", reason="finds the guard by Linux' process table")
def test_a_command_is_committed_although_its_guard_was_killed(served: tuple[FakePlane, str]) -> None:
    plane, url = served

    with locking(url, "job", "--", "sh", "-c", "echo $$; sleep 1") as process:
        command = int(first_line(process))
        (guard,) = [child for child in psutil.Process(process.pid).children() if child.pid != command]
        guard.kill()
        status = process.wait(TIMEOUT_S)

    assert status == 0
    assert plane.at("/v1/release")[0].members().get("rollback") is not True
