"""A home without settings, and `holdfast store` called in it."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli import store
from holdfast.cli.main import app
from tests.unit.cli.invocation import Invoke


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def invoke(home: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    def run_quietly(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    monkeypatch.setattr(store, "_run", run_quietly)  # The real one also takes over the logs of the process.
    return lambda *arguments, **more: CliRunner().invoke(app, ["store", *arguments], **more)
