"""`holdfast bench query` runs against a plane."""

import json

from typer.testing import CliRunner

from holdfast.cli.bench.command import app
from holdfast.cli.bench.query import text_of


def test_a_short_run_compares_index_and_scan() -> None:
    done = CliRunner().invoke(app, ["query", "--documents", "200", "--seconds", "0.1", "--output", "json"])

    told = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert list(told["query_cpu_us_by_matches"]) == ["1", "10", "50"]
    assert told["index_pages_per_s"] > 0
    assert told["scan_pages_per_s"] > 0
    assert told["query_cpu_us_beside_large_document"] > 0
    assert "pages of 50" in text_of(told)
