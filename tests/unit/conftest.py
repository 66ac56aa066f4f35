"""What lets these tests be the inner loop: they start no process and open no connection, and the guard holds them to it."""

import multiprocessing.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# Raised by the interpreter for every way to a process or to a peer, also within asyncio and multiprocessing. A socketpair
# raises none of them.
_FORBIDDEN = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "subprocess.Popen",
    }
)
_ADVICE = "a unit test does without processes and connections: it belongs into tests/service or tests/system"


class Guard:
    """Refuses what a unit test does without. An audit hook stays for as long as the interpreter: `is_on` ends its work."""

    def __init__(self) -> None:
        self.is_on = False
        self.refused: list[str] = []

    def hear(self, event: str, _arguments: object) -> None:
        if self.is_on and event in _FORBIDDEN:
            self.refuse(event)

    def refuse(self, what: str) -> None:
        self.refused.append(what)
        raise AssertionError(f"{what}: {_ADVICE}")


@pytest.fixture(scope="session")
def guard() -> Guard:
    guard = Guard()
    sys.addaudithook(guard.hear)
    return guard


@pytest.fixture(autouse=True)
def no_process_and_no_connection(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    """Also fails a test whose code under test swallowed the refusal, or met it in another thread."""
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", _refuser(guard, "multiprocessing"))
    guard.refused.clear()
    guard.is_on = True
    yield guard
    guard.is_on = False
    assert not guard.refused, f"{guard.refused}: {_ADVICE}"


@pytest.fixture(scope="session")
def postgres_server() -> None:
    pytest.fail(f"PostgreSQL: {_ADVICE}")


@pytest.fixture(scope="session")
def redis_server() -> None:
    pytest.fail(f"Redis: {_ADVICE}")


def _refuser(guard: Guard, what: str) -> Callable[..., Any]:
    def refuse(*_arguments: object) -> None:
        guard.refuse(what)  # It starts its servers below all audit events.

    return refuse
