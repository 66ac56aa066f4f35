"""The lint of metrics finds what promtool finds."""

import pytest

from tests.infra.prometheus_lint import problems


def page(name: str, kind: str, help_text: str = "Something.", labels: str = "") -> str:
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{name}{labels} 1\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (page("a_duration_ms_milliseconds", "gauge"), "abbreviated unit ms"),
        (page("a_lag_milliseconds", "gauge"), "should be in seconds"),
        (page("a_cpu_percent", "gauge"), "should be in ratio"),
        (page("a_commits", "counter"), "end in _total"),
        (page("a_commits_total", "gauge"), "end in _total"),
        (page("holdfast_storage_commits", "gauge"), "only grows"),
        (page("a_level", "gauge", " "), "no help text"),
        (page("aB", "gauge"), "snake case"),
        (page("a_gauge", "gauge"), "its type gauge"),
        (page("a_count", "gauge"), "like a part of a histogram"),
        (page("a_bytes_free", "gauge"), "unit bytes is not at the end"),
        (page("a_level", "gauge", labels='{le="1"}'), "belongs to histograms"),
        (page("a_level", "gauge", labels='{fooBar="1"}'), "label fooBar"),
        (page("a_level", "gauge") + page("a_level", "gauge"), "twice"),
        ("a_level 1\n", "without TYPE"),
        ("what is this?\n", "not a sample"),
    ],
)
def test_a_fault_is_found(text: str, fault: str) -> None:
    assert any(fault in problem for problem in problems(text)), problems(text)


def test_a_page_without_faults_is_left_alone() -> None:
    name = "a_duration_seconds"
    histogram = f'# HELP {name} Time.\n# TYPE {name} histogram\n{name}_bucket{{le="1"}} 1\n'

    text = (
        page("a_total", "counter")
        + page("a_bytes_total", "counter", labels='{b="x{} le=\\"y"}')
        + page("a_level", "gauge")
        + histogram
        + f"{name}_sum 0.5\n{name}_count 1\n"
    )

    assert problems(text) == []
