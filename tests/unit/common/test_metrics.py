"""The registry counts, renders Prometheus text, and stays bounded."""

import math

import pytest

from holdfast.common.telemetry import metrics
from holdfast.common.telemetry.metrics import Registry


def lines_of(registry: Registry, name: str) -> list[str]:
    return [line for line in registry.render().decode().splitlines() if name in line]


def test_a_counter_is_rendered_with_total_and_its_help() -> None:
    registry = Registry()
    acquired = registry.counter("holdfast.lease.acquire", "Leases taken.", ("namespace",))

    acquired.labels("default").inc()
    acquired.labels("default").inc(2)

    assert lines_of(registry, "lease_acquire") == [
        "# HELP holdfast_lease_acquire_total Leases taken.",
        "# TYPE holdfast_lease_acquire_total counter",
        'holdfast_lease_acquire_total{namespace="default"} 3',
    ]


def test_a_metric_without_labels_shows_before_anything_happened() -> None:
    registry = Registry()
    registry.counter("holdfast.lease.release", "Leases given back.")

    assert "holdfast_lease_release_total 0" in lines_of(registry, "release")


def test_a_gauge_goes_up_and_down() -> None:
    registry = Registry()
    active = registry.gauge("holdfast.lease.active", "Leases held.").labels()

    active.set(5)
    active.inc()
    active.dec(2.5)

    assert "holdfast_lease_active 3.5" in lines_of(registry, "active")


def test_a_histogram_is_cumulative_and_in_the_base_unit() -> None:
    registry = Registry()
    took = registry.histogram(
        "holdfast.lease.acquire.duration_ms", "Time.", ("ok",), unit="ms", bounds=(1.0, 2.5)
    )

    for value in (0.5, 1.0, 2.0, 99.0):
        took.labels("1").observe(value)

    name = "holdfast_lease_acquire_duration_seconds"
    assert lines_of(registry, name)[2:] == [
        f'{name}_bucket{{ok="1",le="0.001"}} 2',
        f'{name}_bucket{{ok="1",le="0.0025"}} 3',
        f'{name}_bucket{{ok="1",le="+Inf"}} 4',
        f'{name}_sum{{ok="1"}} 0.1025',
        f'{name}_count{{ok="1"}} 4',
    ]


@pytest.mark.parametrize(
    ("name", "unit", "shown"),
    [
        ("holdfast.lsf.lag", "ms", "holdfast_lsf_lag_seconds 0.25"),
        ("holdfast.drain.elapsed_seconds", "s", "holdfast_drain_elapsed_seconds 250"),
        ("holdfast.lsf.rss.bytes", "By", "holdfast_lsf_rss_bytes 250"),
        ("holdfast.lsf.cpu.percent", "%", "holdfast_lsf_cpu_ratio 2.5"),
        ("holdfast.lsf.load", "", "holdfast_lsf_load 250"),
    ],
)
def test_a_unit_becomes_the_base_unit_that_prometheus_wants(name: str, unit: str, shown: str) -> None:
    registry = Registry()
    registry.gauge(name, "h", unit=unit).labels().set(250)

    assert shown in lines_of(registry, "holdfast_")


def test_a_counter_may_ask_too() -> None:
    registry = Registry()
    registry.counter("holdfast.storage.commits", "h", callback=lambda: 7)

    assert "holdfast_storage_commits_total 7" in lines_of(registry, "commits")


def test_label_values_and_help_are_escaped() -> None:
    registry = Registry()
    registry.counter("holdfast.x", "a\\b\nc", ("who",)).labels('a"b\\c\nd').inc()

    assert lines_of(registry, "holdfast_x") == [
        "# HELP holdfast_x_total a\\\\b\\nc",
        "# TYPE holdfast_x_total counter",
        'holdfast_x_total{who="a\\"b\\\\c\\nd"} 1',
    ]


def test_a_label_value_that_is_no_unicode_does_not_break_the_page() -> None:
    registry = Registry()
    registry.counter("holdfast.x", "h", ("who",)).labels("\ud800").inc()

    assert 'holdfast_x_total{who="?"} 1' in lines_of(registry, "holdfast_x")


def test_dotted_label_names_get_underscores() -> None:
    registry = Registry()
    registry.counter("holdfast.x", "h", ("holdfast.namespace",)).labels("a").inc()

    assert 'holdfast_x_total{holdfast_namespace="a"} 1' in lines_of(registry, "holdfast_x")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (1e18, "1e+18"), (0.1, "0.1"), (-2.0, "-2")],
)
def test_every_number_is_rendered(value: float, shown: str) -> None:
    registry = Registry()
    registry.gauge("holdfast.g", "h").labels().set(value)

    assert f"holdfast_g {shown}" in lines_of(registry, "holdfast_g")


def test_too_many_label_sets_fold_into_other_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LABEL_SETS_MAX", 3)
    registry = Registry()
    hits = registry.counter("holdfast.hits", "h", ("who", "what"))

    for number in range(10):
        hits.labels(str(number), "x").inc()

    assert 'holdfast_hits_total{who="other",what="other"} 7' in lines_of(registry, "hits")
    assert len(hits.children()) == 4
    assert 'holdfast_metrics_overflow_total{metric="holdfast.hits"} 7' in lines_of(registry, "overflow")


def test_a_callback_is_asked_when_the_metrics_are_read() -> None:
    registry = Registry()
    depth = [1]
    registry.gauge("holdfast.depth", "h", callback=lambda: depth[0])
    depth[0] = 42

    assert "holdfast_depth 42" in lines_of(registry, "depth")


def test_label_sets_that_a_callback_no_longer_reports_are_gone() -> None:
    registry = Registry()
    waiting: dict[tuple[str, ...], float] = {("a",): 1.0, ("b",): 2.0}
    registry.gauge("holdfast.waiting", "h", ("queue",), callback=lambda: waiting)
    registry.render()
    del waiting[("a",)]

    assert [line for line in lines_of(registry, "waiting") if line[0] != "#"] == [
        'holdfast_waiting{queue="b"} 2'
    ]


def test_a_callback_that_raises_is_counted_and_hides_nothing_else() -> None:
    registry = Registry()
    registry.gauge("holdfast.broken", "h", callback=lambda: 1 / 0)
    registry.counter("holdfast.fine", "h").labels().inc()

    first, second = registry.render(), registry.render()

    assert b"holdfast_fine_total 1" in first
    assert b'holdfast_metrics_callback_failed_total{metric="holdfast.broken"} 2' in second


def test_the_same_metric_declared_twice_is_one() -> None:
    registry = Registry()
    first = registry.counter("holdfast.x", "h", ("a",))

    assert registry.counter("holdfast.x", "h", ("a",)) is first


def test_the_same_name_with_another_shape_is_refused() -> None:
    registry = Registry()
    registry.counter("holdfast.x", "h", ("a",))

    with pytest.raises(ValueError, match="exists as a counter"):
        registry.gauge("holdfast.x", "h", ("a",))


@pytest.mark.parametrize("name", ["", "Holdfast", "holdfast..x", "holdfast-x", "1x", "x y"])
def test_names_that_prometheus_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="dotted lower-case words"):
        Registry().counter(name, "h")


def test_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="has labels"):
        Registry().counter("holdfast.x", "h", ("a", "b")).labels("only one")


def test_bounds_that_do_not_grow_are_refused() -> None:
    with pytest.raises(ValueError, match="do not grow"):
        Registry().histogram("holdfast.x", "h", bounds=(2.0, 1.0))
