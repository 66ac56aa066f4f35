"""`holdfast bench queue` runs against a plane."""

import json

from typer.testing import CliRunner

from holdfast.cli.bench.command import app
from holdfast.cli.bench.measure import Server
from holdfast.cli.bench.queue.command import _fill
from holdfast.cli.bench.queue.operations import PAYLOAD
from tests.infra.fake_plane import fake_plane, reply


def test_a_short_run_prints_all_its_figures_as_json() -> None:
    words = ["queue", "-c", "2", "-s", "0.3", "--waiting", "10", "--output", "json"]

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 0, result.output
    members = json.loads(result.stdout)
    assert all(members[name]["messages"] > 0 for name in ("single", "subscribe", "batch"))
    assert members["wake"]["wakes"] > 0


def test_so_many_messages_wait_before_the_first_load() -> None:
    with fake_plane() as (plane, url):
        path = "/v1/queue/enqueueBatch"
        plane.then(path, *[reply(200, messages=[])] * 10)

        _fill(Server(url, None), 1_234)

        assert sum(request.body.count(PAYLOAD) for request in plane.at(path)) == 1_234
