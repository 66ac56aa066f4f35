"""`holdfast store migrate` as a command."""

import json

from holdfast.storage.postgres.migration import load_migrations
from tests.infra.invocation import Invoke


def test_a_dry_run_prints_versions_and_sql_and_the_real_run_then_applies_them(
    invoke: Invoke, postgres_url: str
) -> None:
    dry = invoke("migrate", "--store", postgres_url, "--dry-run")
    real = invoke("migrate", "--store", postgres_url)
    again = invoke("migrate", "--store", postgres_url)

    assert "-- would apply 0001 store" in dry.output
    assert "CREATE TABLE records" in dry.output
    assert real.output.splitlines()[0] == "applied 0001 store"
    assert again.output == "nothing to migrate: the store is up to date\n"


def test_json_holds_the_same(invoke: Invoke, postgres_url: str) -> None:
    result = invoke("migrate", "--store", postgres_url, "--dry-run", "--output", "json")

    told = json.loads(result.output)
    assert told["dry_run"] is True
    assert [row["version"] for row in told["migrations"]] == [item.version for item in load_migrations()]


def test_a_wrong_url_ends_with_a_sentence_and_status_1(invoke: Invoke) -> None:
    result = invoke("migrate", "--store", "postgres://host/db?schema=NO")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: schema 'NO' is not a plain name")


def test_a_backend_without_a_schema_has_nothing_to_migrate(invoke: Invoke) -> None:
    result = invoke("migrate", "--store", "mem://")

    assert result.exit_code == 0
    assert "nothing to migrate" in result.output
