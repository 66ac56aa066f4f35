"""A server for the tests is found in order, and never silently missing."""

import pytest

from tests.infra.provision import Unavailable, first_available


def no_engine() -> str:
    raise Unavailable("no engine answers")


def no_program() -> str:
    raise Unavailable("nothing in PATH")


def test_the_first_way_that_works_is_taken() -> None:
    ways = [("Docker", no_engine), ("programs", lambda: "from programs"), ("wheel", lambda: "from a wheel")]

    assert first_available("PostgreSQL", ways) == "from programs"


def test_failing_all_ways_is_an_error_that_names_each_and_why() -> None:
    with pytest.raises(RuntimeError) as failed:
        first_available("PostgreSQL", [("Docker", no_engine), ("programs", no_program)])

    assert str(failed.value).splitlines() == [
        "no PostgreSQL for the tests; tried in this order:",
        "  Docker: no engine answers",
        "  programs: nothing in PATH",
    ]
