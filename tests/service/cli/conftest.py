"""`holdfast store` called in a home without settings; a fake plane, and a shell that holds one of its keys."""

import asyncio
import shlex
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.cli.store import command as store
from tests.infra.fake_plane import FakePlane, fake_plane
from tests.infra.invocation import Invoke, client


@pytest.fixture
def invoke(home: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    def run_quietly(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    monkeypatch.setattr(store, "_run", run_quietly)  # The real one also takes over the logs of the process.
    return lambda *arguments, **more: CliRunner().invoke(app, ["store", *arguments], **more)


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakePlane]:
    with fake_plane() as (running, url):
        for name in ("KEY", "LEASE", "FENCING_TOKEN", "TXN_ID", "NAMESPACE", "OWNER", "CORRELATION_ID"):
            for prefix in ("HOLDFAST_CLIENT_", "LOCKD_CLIENT_"):
                monkeypatch.delenv(prefix + name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("HOLDFAST_CLIENT_SERVER", url)
        monkeypatch.chdir(tmp_path)
        yield running


@pytest.fixture
def held(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> FakePlane:
    """A shell that has evaluated what acquire printed."""
    for line in client("acquire", "--key", "orders").stdout.splitlines():
        name, _, value = shlex.split(line)[1].partition("=")
        monkeypatch.setenv(name, value)
    return plane
