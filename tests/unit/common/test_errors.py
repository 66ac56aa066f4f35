"""Errors know their code and status, and the table in the docs lists them all."""

import re
from pathlib import Path

import pytest

from holdfast.cli.reference import END, errors_table, pages, with_table
from holdfast.common.errors import HoldfastError, ShutdownDraining, error_classes

ROOT = Path(__file__).parents[3]


def own_classes() -> list[type[HoldfastError]]:
    errors_table()  # Imports every unit's errors.
    return [error for error in error_classes() if error.__module__.startswith("holdfast.")]


def test_the_docs_list_every_error_as_it_is() -> None:
    path = ROOT / "docs" / "reference" / "errors.md"

    assert path.read_text("utf-8") == pages(ROOT)[path], "run `make docs`"


def test_every_error_has_a_code_a_client_can_switch_on_and_a_sentence() -> None:
    for error in own_classes():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", error.code), error
        assert 400 <= error.status <= 599, error
        assert error.__doc__, error


def test_one_code_has_one_status() -> None:
    statuses: dict[str, set[int]] = {}
    for error in own_classes():
        statuses.setdefault(error.code, set()).add(error.status)

    assert {code: found for code, found in statuses.items() if len(found) > 1} == {}


def test_an_error_carries_its_detail_and_when_to_retry() -> None:
    error = ShutdownDraining("server is draining existing leases", retry_after_s=8)

    assert (error.code, error.status) == ("shutdown_draining", 503)
    assert (error.detail, error.retry_after_s, str(error)) == (
        "server is draining existing leases",
        8,
        "server is draining existing leases",
    )


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        with_table(f"# Title\n{END}\n", "table")
