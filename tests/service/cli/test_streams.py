"""Standard streams that are closed, or have no reader: a command says so in a line or not at all, and never breaks."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from holdfast.client import Client
from holdfast.client.testing import TestServer
from tests.service.client.shell import BIN, TIMEOUT_S
from tests.system.cli import PROGRAM, environment

BROKEN_PIPE = 141

READING = {
    "client update -k doc --lease l --fencing-token 1": 1,
    "client attachments put -k doc --lease l --fencing-token 1 --name a --file -": 1,
    "client edit /n=1": 1,
    "queue enqueue -q none": 1,
    "queue enqueue -q none --lines -": 1,
    "queue dlq purge -q jobs --all": 2,
    "lql eval /n=1": 1,
    "store import - --store mem://": 1,
    "lock key -- true": 0,
}
"""Commands that look at standard input, and their status when it is closed."""

READING_LATER = {
    "client attachments put -k doc --lease l --fencing-token 1 --name a --file -",
    "client edit /n=1",
    "queue enqueue -q none",
}
"""Read by the same code as the others of their group: they run in `make test-all`."""

PRINTING = {
    "client get -k doc --public": 1,
    "client attachments get -k doc --public --name file": 1,
    "client query -d /n=1": 1,
    "client acquire -k other --block nowait": 0,
    "queue watch -q jobs --count 1": 0,
    "queue dequeue -q many --block nowait -o -": 1,
    "queue subscribe -q many --block nowait": 1,
    "lql mutate --file /dev/null /n=1": 1,
    "store export - --store mem://": 1,
    "config show": 0,
}
"""Commands that print, and their status when standard output is closed: data that goes nowhere is an error."""

PRINTING_LATER = {
    "client attachments get -k doc --public --name file",
    "client acquire -k other --block nowait",
    "queue watch -q jobs --count 1",
    "queue dequeue -q many --block nowait -o -",
    "lql mutate --file /dev/null /n=1",
}
"""Printed by the same code as the others: they run in `make test-all`."""


def commands(told: dict[str, int], later: set[str]) -> list[ParameterSet]:
    assert later <= set(told)
    return [pytest.param(command, marks=[pytest.mark.long] * (command in later)) for command in told]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running, Client(running.url) as client:
        with client.acquire("doc") as session:
            session.save({"n": 1, "text": "x" * 300_000})
            session.attachments.put("file", b"y" * 300_000)
        jobs, many = client.queue("jobs"), client.queue("many")
        jobs.enqueue(b"z")
        for _ in range(20):
            many.enqueue(b"z" * 100_000)
        yield running


def run(server: TestServer, folder: Path, script: str) -> "subprocess.CompletedProcess[str]":
    variables = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "HOLDFAST_CLIENT_SERVER": server.url,
        "TMPDIR": str(folder),
    }
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def until_there(path: Path) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < deadline_s, f"{path} did not appear"
        time.sleep(0.05)


def has_no_traceback(done: "subprocess.CompletedProcess[str]") -> bool:
    return not any(word in done.stderr for word in ("Traceback", "Exception ignored", "BrokenPipe", "Errno"))


@pytest.mark.parametrize("command", commands(READING, READING_LATER))
def test_closed_standard_input(command: str, server: TestServer, tmp_path: Path) -> None:
    done = run(server, tmp_path, f"holdfast {command} <&-")

    assert has_no_traceback(done), done.stderr
    assert done.returncode == READING[command], done.stderr
    if READING[command] == 1:
        assert done.stderr == "error: standard input is closed; name a file\n"


@pytest.mark.parametrize(
    "command", commands(PRINTING, PRINTING_LATER - {"client acquire -k other --block nowait"})
)
def test_closed_standard_output(command: str, server: TestServer, tmp_path: Path) -> None:
    done = run(server, tmp_path, f"holdfast {command} >&-")

    assert has_no_traceback(done), done.stderr
    assert done.returncode == PRINTING[command], done.stderr
    if PRINTING[command] == 1:
        assert "error: standard output is closed; name a file\n" in done.stderr


@pytest.mark.parametrize("command", commands(PRINTING, PRINTING_LATER))
def test_a_reader_that_goes_away(command: str, server: TestServer, tmp_path: Path) -> None:
    script = (
        f"holdfast {command} | exec true; echo ${{PIPESTATUS[0]}}; holdfast {command} | head -c 1 > /dev/null"
    )

    done = run(server, tmp_path, script)

    assert has_no_traceback(done), done.stderr
    status = int(done.stdout)
    quiet = {"lock key -- true", "lql vectors /dev/null"}
    assert status == BROKEN_PIPE or (command in quiet and status == 0), done.stderr


def test_a_full_disk_behind_standard_output_is_told(server: TestServer, tmp_path: Path) -> None:
    done = run(server, tmp_path, "holdfast config show > /dev/full")

    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_a_reader_that_has_seen_enough(server: TestServer, tmp_path: Path) -> None:
    script = """
    holdfast client get -k doc --public | head -c 1
    holdfast --help | head -n 1
    holdfast client acquire --help | exec true
    holdfast --nonsense 2>&1 | exec true
    """

    assert has_no_traceback(run(server, tmp_path, script))


def test_all_streams_closed(server: TestServer, tmp_path: Path) -> None:
    done = run(
        server,
        tmp_path,
        "holdfast queue stats -q jobs <&- >&- 2>&-; echo $?; holdfast --nonsense 2>&-; echo $?",
    )

    assert done.stdout == "0\n2\n"


def test_a_subscription_whose_reader_goes_away_acks_nothing_unread(
    server: TestServer, tmp_path: Path
) -> None:
    script = """
    seq 1 40 | holdfast queue enqueue -q lines --lines - > /dev/null
    holdfast queue subscribe -q lines --block nowait | exec true
    holdfast queue subscribe -q lines --block nowait | grep -c message_id
    """

    done = run(server, tmp_path, script)

    assert (done.stdout, done.stderr) == ("40\n", "")


def test_a_plane_keeps_serving_when_nobody_reads_what_it_says(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [
                PROGRAM,
                "serve",
                "--listen-proto",
                "unix",
                "--listen",
                str(tmp_path / "s"),
                "--store",
                "mem://",
            ],
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=errors,
        )
    os.close(writing)
    until_there(tmp_path / "s")
    with process, Client(f"unix://{tmp_path}/s") as client:
        try:
            with client.acquire("key"):
                process.terminate()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


def test_a_plane_without_any_stream_keeps_its_files_apart(tmp_path: Path) -> None:
    """A file of the store that took the number of a closed stream would be written over by the next message."""
    serve = f"exec {PROGRAM} serve --listen-proto unix --listen {tmp_path}/s <&- >&- 2>&-"
    process = subprocess.Popen(["sh", "-c", serve], env=environment(tmp_path))
    until_there(tmp_path / "s")
    with process, Client(f"unix://{tmp_path}/s") as client:
        try:
            with client.acquire("key"):
                links = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in range(3)]
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
    assert links == ["/dev/null"] * 3
