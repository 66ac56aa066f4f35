"""The options that every command of a running plane has: which server, how it is reached, which namespace."""

import json
import os

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from tests.infra.fake_plane import FakePlane, Reply, reply
from tests.infra.program import free_port

TXN = "dbt4ue9ksducbc8b3lh0"
CALLS: dict[str, tuple[list[str], str, Reply]] = {
    "client": (["client", "describe", "--key", "orders"], "/v1/describe", reply(200, key="orders")),
    "namespace": (["namespace", "get", "query"], "/v1/namespace", reply(200, namespace="n", query={})),
    "index": (["index", "flush"], "/v1/index/flush", reply(200, namespace="n", mode="async", accepted=True)),
    "txn": (
        ["txn", "commit", "--txn-id", TXN, "-p", "orders"],
        "/v1/txn/decide",
        reply(200, txn_id=TXN, state="commit"),
    ),
    "queue": (["queue", "stats", "-q", "jobs"], "/v1/queue/stats", reply(200, namespace="n", queue="jobs")),
}
each_group = pytest.mark.parametrize("group", CALLS)


def call(group: str, *options: str) -> Result:
    return CliRunner().invoke(app, [*CALLS[group][0], *options])


@each_group
def test_the_next_server_of_the_list_is_asked_when_one_is_away(plane: FakePlane, group: str) -> None:
    _, path, answer = CALLS[group]
    plane.then(path, answer)
    servers = f"http://127.0.0.1:{free_port()},{os.environ['HOLDFAST_CLIENT_SERVER']}"

    result = call(group, "--server", servers)

    assert result.exit_code == 0, result.output
    assert len(plane.at(path)) == 1


@each_group
def test_the_namespace_is_the_option_else_default(plane: FakePlane, group: str) -> None:
    _, path, answer = CALLS[group]
    plane.then(path, answer, answer)

    call(group)
    call(group, "--namespace", "shop")

    plain, named = (f"{seen.query} {seen.body.decode()}" for seen in plane.at(path))
    assert "shop" not in plain
    assert "default" in plain or "namespace" not in plain
    assert "shop" in named


@each_group
def test_a_bundle_is_read_for_tls_and_left_alone_in_the_clear(
    plane: FakePlane, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path, answer = CALLS[group]
    plane.then(path, answer)
    plain_server = os.environ["HOLDFAST_CLIENT_SERVER"].removeprefix("http://")

    with_bundle = call(group, "--server", plain_server, "--bundle", "absent.pem")
    in_the_clear = call(group, "--server", plain_server, "--disable-mtls")

    assert with_bundle.exit_code == 1
    assert "absent.pem" in with_bundle.stderr
    assert in_the_clear.exit_code == 0, in_the_clear.output


@each_group
def test_the_result_is_printed_as_json_on_request(plane: FakePlane, group: str) -> None:
    _, path, answer = CALLS[group]
    plane.then(path, answer)

    assert json.loads(call(group, "--output", "json").stdout)
