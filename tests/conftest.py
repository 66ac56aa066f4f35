"""Servers that the tests share, and a word at the end about where they came from."""

import asyncio
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, settings

from holdfast.common.telemetry.tracing import current_span
from tests.conformance.backends import (
    BACKENDS,
    Backend,
    disk_backend,
    memory_backend,
    postgres_backend,
)
from tests.infra.postgres import PostgresServer, provide_own_postgres, provide_postgres
from tests.infra.redis import RedisServer, from_wheel, provide_redis

_SERVED = pytest.StashKey[dict[str, str]]()

# For each of its clients httpx reads every authority that the system trusts, also where no TLS is spoken: 50 ms of CPU
# time a client. The tests trust only the authorities they make, so there is nothing to read.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

# A busy machine is no defect: no property fails because it, or the making of its input, took long. What `make test`
# tries is the same every time and thirty examples where a test names no number; `make test-all` searches on.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "patient", settings.get_profile("searching"), derandomize=True, database=None, max_examples=30
)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_span_is_left() -> Iterator[None]:
    """Tests that run outside of any task share one context: what they leave in it must not reach the next."""
    yield
    current_span.set(None)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without settings, where the test also stands."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    server = provide_postgres()
    _served(pytestconfig, "postgresql", server.origin)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def own_postgres_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """One that may be killed: the shared one if the tests started it, else another."""
    if postgres_server.is_ours:
        yield postgres_server
        return
    server = provide_own_postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    with own_schema(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def module_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """For the processes that the tests of a module share."""
    with own_schema(postgres_server) as url:
        yield url


@contextmanager
def own_schema(server: PostgresServer) -> Iterator[str]:
    """A store URL with a schema of its own, which is dropped afterwards."""
    schema = f"test_{secrets.token_hex(6)}"
    separator = "&" if "?" in server.url else "?"
    yield f"{server.url}{separator}schema={schema}"
    asyncio.run(_drop_schema(server.url, schema))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Every kind of store, one after the other."""
    match request.param:
        case "mem":
            return memory_backend()
        case "postgres":
            return postgres_backend(request.getfixturevalue("postgres_url"))
        case _:
            return disk_backend(tmp_path / "store", encrypted=request.param == "disk-encrypted")


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    server = provide_redis()
    _served(pytestconfig, "redis", server.origin)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def own_redis_server(redis_server: RedisServer) -> Iterator[RedisServer]:
    """One that may be killed: the shared one if the tests started it, else another."""
    if redis_server.is_ours:
        yield redis_server
        return
    server = from_wheel()
    yield server
    server.stop()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker process: tell the one that prints the summary."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["served"] = session.config.stash.get(_SERVED, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", None) or {}
    for name, origin in output.get("served", {}).items():
        _served(node.config, name, origin)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, origin in sorted(config.stash.get(_SERVED, {}).items()):
        terminalreporter.write_line(f"{name}: {origin}")


def _served(config: pytest.Config, name: str, origin: str) -> None:
    config.stash.setdefault(_SERVED, {})[name] = origin


async def _drop_schema(url: str, schema: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    await connection.execute(f'SET client_min_messages = warning; DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    await connection.close()
