"""`holdfast bench query`: the documents it asks for, and what it tells."""

import json

from typer.testing import CliRunner

from holdfast.cli.bench.command import app
from holdfast.cli.bench.query import DOCUMENT_BYTES, MATCHES, document, text_of


def test_documents_have_a_kilobyte_and_share_their_groups() -> None:
    documents = [json.loads(document(number)) for number in range(1000)]

    for count in MATCHES:
        groups = [members[f"shared_by_{count}"] for members in documents]
        assert {groups.count(group) for group in set(groups)} == {count}
    assert {len(document(number)) for number in (0, 7, 12345)} == {DOCUMENT_BYTES}


def test_a_turn_changes_two_fields() -> None:
    before, after = json.loads(document(3, turn=4)), json.loads(document(3, turn=5))

    assert {name for name in before if before[name] != after[name]} == {"status", "turn"}


def test_a_short_run_compares_index_and_scan() -> None:
    done = CliRunner().invoke(app, ["query", "--documents", "200", "--seconds", "0.1", "--output", "json"])

    told = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert list(told["query_cpu_us_by_matches"]) == ["1", "10", "50"]
    assert told["index_pages_per_s"] > 0
    assert told["scan_pages_per_s"] > 0
    assert told["query_cpu_us_beside_large_document"] > 0
    assert "pages of 50" in text_of(told)
