"""What the processes of the command line import, seen in processes of their own: every import is paid at each start."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_SERVER = {
    "fastapi",
    "pydantic_settings",
    "uvicorn",
    "rocksdict",
    "asyncpg",
    "opentelemetry.sdk",
    "grpc",
    "redis",
}
_TLS = {"cryptography.x509", "cryptography.hazmat.primitives.serialization"}
_CLIENT = {"httpx", "httpcore"}
_SHOWING = {"rich", "pygments", "click"}
_ASYNCHRONOUS = {"asyncio", "holdfast.client.aio.client"}
_FILES = {"yaml"}
_GET = ("client", "get", "-k", "doc", "--lease", "l", "--fencing-token", "1")
_AT_EXIT = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules))
from holdfast.cli.main import app
app()
"""


@pytest.fixture
def no_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOLDFAST_CLIENT_SERVER", raising=False)
    return home


def test_the_entry_point_imports_nothing_heavy() -> None:
    code = "import sys, holdfast.cli.main; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    heavy = {"fastapi", "pydantic", "sqlalchemy", "rocksdict", "uvicorn", "cryptography", "asyncio"}
    assert heavy & set(loaded.split()) == set()


def test_help_imports_no_command(no_settings: Path) -> None:
    heavy = _SERVER | _TLS | _CLIENT | _FILES | {"asyncio", "pydantic"}

    assert heavy & _loaded_by(["--help"]) == set()


def test_a_client_command_imports_nothing_of_a_server(no_settings: Path) -> None:
    loaded = _loaded_by([*_GET, "--server", "http://127.0.0.1:9"])

    assert "httpx" in loaded
    assert (_SERVER | _TLS | _FILES) & loaded == set()


@pytest.mark.parametrize("words", [_GET, ("queue", "stats", "-q", "jobs"), ("kv", "get", "a")])
def test_a_command_that_blocks_imports_no_event_loop_and_nothing_that_draws(
    no_settings: Path, words: Sequence[str]
) -> None:
    loaded = _loaded_by([*words, "--server", "http://127.0.0.1:9"])

    assert "holdfast.client.sync.client" in loaded
    assert (_ASYNCHRONOUS | _SHOWING) & loaded == set()


def test_a_command_that_awaits_imports_no_blocking_client(no_settings: Path) -> None:
    loaded = _loaded_by(["lock", "job", "--server", "http://127.0.0.1:9", "--", "true"])

    assert "holdfast.client.aio.client" in loaded
    assert (_SERVER | _TLS | _FILES | _SHOWING | {"holdfast.client.sync.client"}) & loaded == set()


def test_the_sdk_imports_the_client_that_is_named_and_not_the_other() -> None:
    code = "import sys; from holdfast.client import Client; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert _ASYNCHRONOUS & set(loaded.split()) == set()


def test_a_plane_in_memory_without_tls_imports_no_other_engine_no_tls_and_no_client(
    no_settings: Path,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _AT_EXIT, "serve", "--store", "mem://", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)

    loaded = _modules(process.communicate(timeout=60)[0])

    assert "fastapi" in loaded
    others = {"rocksdict", "asyncpg", "redis", "grpc", "opentelemetry.sdk", "rich", "pygments"}
    assert (others | _TLS | _CLIENT | _FILES) & loaded == set()


def _loaded_by(arguments: Sequence[str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _AT_EXIT, *arguments], capture_output=True, text=True, check=False
    )
    return _modules(done.stdout)


def _modules(output: str) -> set[str]:
    last = output.splitlines()[-1]
    assert last.startswith("loaded:")
    return set(last.split()[1:])
