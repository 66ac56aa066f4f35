"""The `holdfast` program as a process, with a home of its own and nothing else from outside."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("holdfast"))
TIMEOUT_S = 60


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), **more}


def holdfast(
    home: Path, *arguments: str, input_text: str | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [PROGRAM, *arguments],
        cwd=home,
        env=environment(home, **variables),
        input=input_text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@dataclass(slots=True)
class Server:
    """A server process that has said where it listens."""

    process: "subprocess.Popen[str]"
    announcement: str

    @property
    def url(self) -> str:
        return self.announcement.split()[4]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)


@contextmanager
def serving(home: Path, *command: str, **variables: str) -> Iterator[Server]:
    """Start `command` (or `holdfast serve` with these flags) and wait until it listens."""
    words = list(command) if command and command[0] == sys.executable else [PROGRAM, "serve", *command]
    with (home / "server.log").open("a") as log:
        process = subprocess.Popen(
            words,
            cwd=home,
            env=environment(home, **variables),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        announcement = process.stdout.readline()
        assert announcement.startswith("holdfast is ready at "), (home / "server.log").read_text()
        yield Server(process, announcement)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
