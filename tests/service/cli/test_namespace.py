"""`holdfast namespace` and `holdfast index`: what they send and print."""

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from tests.infra.fake_plane import FakePlane, reply

CONFIG: dict[str, Any] = {"namespace": "n", "query": {"preferred_engine": "scan", "fallback_engine": "none"}}
SHOWN = """{
  "namespace": "n",
  "query": {
    "preferred_engine": "scan",
    "fallback_engine": "none"
  }%s
}
"""


def holdfast(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


@pytest.mark.parametrize("command", [["namespace"], ["client", "namespace"]])
def test_the_configuration_is_shown(plane: FakePlane, command: list[str]) -> None:
    plane.then("/v1/namespace", reply(200, **CONFIG), reply(200, {"ETag": "e1"}, **CONFIG))

    as_json = holdfast(*command, "get", "query", "-n", "n")
    as_text = holdfast(*command, "get", "query", "-n", "n", "-o", "text")

    assert as_json.stdout == SHOWN % ""
    assert as_text.stdout == (
        "Namespace: n\nPreferred query engine: scan\nFallback query engine: none\nETag: e1\n"
    )
    assert plane.at("/v1/namespace")[0].query == {"namespace": "n"}


def test_the_configuration_is_changed_under_a_condition(plane: FakePlane) -> None:
    plane.then("/v1/namespace", reply(200, {"ETag": "e2"}, **CONFIG))

    result = holdfast("namespace", "set", "query", "--preferred", "scan", "--if-match", "e1")

    assert result.stdout == SHOWN % ',\n  "etag": "e2"'
    request = plane.at("/v1/namespace")[0]
    assert request.members() == {"namespace": "default", "query": {"preferred_engine": "scan"}}
    assert request.headers["if-match"] == "e1"


def test_a_conflict_is_one_line(plane: FakePlane) -> None:
    plane.then("/v1/namespace", reply(409, error="namespace_config_conflict", detail="changed meanwhile"))

    result = holdfast("namespace", "set", "query", "--fallback", "scan", "--if-match", "e1")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: namespace_config_conflict (changed meanwhile)\n"


def test_an_index_is_flushed(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKD_CLIENT_NAMESPACE", "n")
    answer: dict[str, Any] = {
        "namespace": "n",
        "mode": "async",
        "accepted": True,
        "flushed": False,
        "pending": False,
    }
    plane.then("/v1/index/flush", reply(202, **answer), reply(200, **answer))

    later = holdfast("index", "flush")
    waited = holdfast("index", "flush", "-m", "wait", "-o", "text")

    assert later.stdout.startswith('{\n  "namespace": "n",\n  "mode": "async",\n')
    assert waited.stdout.startswith("namespace: n\nmode: async\naccepted: true\n")
    sent = [request.members() for request in plane.at("/v1/index/flush")]
    assert sent == [{"namespace": "n", "mode": "async"}, {"namespace": "n", "mode": "wait"}]


@pytest.mark.parametrize(
    "command",
    [
        ["namespace"],
        ["namespace", "get", "query"],
        ["namespace", "set", "query"],
        ["index"],
        ["index", "flush"],
        ["client", "query"],
        ["client", "namespace", "get", "query"],
    ],
)
def test_every_command_has_an_example(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    assert "Example" in holdfast(*command, "--help").stdout
