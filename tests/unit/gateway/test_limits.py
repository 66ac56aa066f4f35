"""From settings to limits: what is on by default, and what the models' own triggers do when asked for."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.common.express.traits import Group
from holdfast.gateway.admission.controller import State
from holdfast.gateway.admission.limits import controller_of, turn_budget_s
from holdfast.gateway.admission.load_sample import HostFigures, InFlight, LoadSample
from holdfast.gateway.settings import GatewaySettings


def _settings(**fields: Any) -> GatewaySettings:
    return GatewaySettings.isolated(**fields)


def test_a_busy_machine_alone_is_no_reason_to_slow_anybody_down() -> None:
    controller = controller_of(_settings())

    controller.observe(
        LoadSample(
            lag_s=0.04,
            in_flight=InFlight(locks=10_000, queries=1000),
            host=HostFigures(
                cpu_percent=100, load_1=64, load_multiplier=32, memory_percent=90, swap_percent=100
            ),
        )
    )

    assert controller.state is State.DISENGAGED


@pytest.mark.parametrize(
    ("fields", "sample", "reason"),
    [
        ({}, LoadSample(lag_s=0.05), "lag_soft"),
        ({}, LoadSample(lag_s=0.15), "lag_hard"),
        ({}, LoadSample(host=HostFigures(memory_percent=98)), "memory_hard"),
        ({"queue_consumers_max": 1000}, LoadSample(in_flight=InFlight(consumers=750)), "queue_consumer_soft"),
        (
            {"queue_consumers_max": 1000},
            LoadSample(in_flight=InFlight(consumers=1000)),
            "queue_consumer_hard",
        ),
        (
            {"qrf_queue_consumer_hard_limit": 8},
            LoadSample(in_flight=InFlight(consumers=6)),
            "queue_consumer_soft",
        ),
        ({"qrf_queue_soft_limit": 5}, LoadSample(in_flight=InFlight(acks=5)), "queue_inflight_soft"),
        ({"qrf_lock_hard_limit": 5}, LoadSample(in_flight=InFlight(locks=5)), "lock_inflight_hard"),
        ({"qrf_query_hard_limit": 5}, LoadSample(in_flight=InFlight(queries=5)), "query_inflight_hard"),
        ({"qrf_cpu_hard_limit_percent": 85}, LoadSample(host=HostFigures(cpu_percent=85)), "cpu_hard"),
        ({"qrf_load_soft_multiplier": 4}, LoadSample(host=HostFigures(load_multiplier=4)), "load_soft"),
        ({"qrf_memory_hard_limit_bytes": 10**6}, LoadSample(host=HostFigures(rss_bytes=10**6)), "rss_hard"),
        ({"qrf_swap_soft_limit_bytes": 10**6}, LoadSample(host=HostFigures(swap_bytes=10**6)), "swap_soft"),
        (
            {"qrf_swap_hard_limit_percent": 50},
            LoadSample(host=HostFigures(swap_percent=50)),
            "swap_percent_hard",
        ),
    ],
)
def test_every_limit_is_a_trigger_with_its_name(
    fields: dict[str, Any], sample: LoadSample, reason: str
) -> None:
    step = controller_of(_settings(**fields)).observe(sample)

    assert step is not None
    assert step.reason == reason


FIGURES: dict[str, Callable[[float], LoadSample]] = {
    # The settings of a pair of limits, without `soft` and `hard`, and the figure that they are about.
    "qrf_lag_{}_limit_s": lambda figure: LoadSample(lag_s=figure),
    "qrf_queue_{}_limit": lambda figure: LoadSample(in_flight=InFlight(producers=int(figure))),
    "qrf_queue_consumer_{}_limit": lambda figure: LoadSample(in_flight=InFlight(consumers=int(figure))),
    "qrf_lock_{}_limit": lambda figure: LoadSample(in_flight=InFlight(locks=int(figure))),
    "qrf_query_{}_limit": lambda figure: LoadSample(in_flight=InFlight(queries=int(figure))),
    "qrf_memory_{}_limit_bytes": lambda figure: LoadSample(host=HostFigures(rss_bytes=int(figure))),
    "qrf_memory_{}_limit_percent": lambda figure: LoadSample(host=HostFigures(memory_percent=figure)),
    "qrf_swap_{}_limit_bytes": lambda figure: LoadSample(host=HostFigures(swap_bytes=int(figure))),
    "qrf_swap_{}_limit_percent": lambda figure: LoadSample(host=HostFigures(swap_percent=figure)),
    "qrf_cpu_{}_limit_percent": lambda figure: LoadSample(host=HostFigures(cpu_percent=figure)),
    "qrf_load_{}_multiplier": lambda figure: LoadSample(host=HostFigures(load_multiplier=figure)),
}


@pytest.mark.parametrize("pair", FIGURES)
def test_a_figure_at_its_soft_limit_arms_and_at_its_hard_limit_engages(pair: str) -> None:
    settings = _settings(**{pair.format("soft"): 40, pair.format("hard"): 60})

    def state_at(figure: float) -> State:
        controller = controller_of(settings)
        controller.observe(FIGURES[pair](figure))
        return controller.state

    states = [state_at(figure) for figure in (39, 40, 59, 60)]
    assert states == [State.DISENGAGED, State.SOFT_ARM, State.SOFT_ARM, State.ENGAGED]


def test_each_state_has_the_delay_of_its_setting() -> None:
    controller = controller_of(
        _settings(
            qrf_cpu_soft_limit_percent=70,
            qrf_cpu_hard_limit_percent=80,
            qrf_soft_delay_s="3s",
            qrf_engaged_delay_s="2s",
            qrf_recovery_samples=2,
        )
    )

    def observe(cpu_percent: float) -> tuple[State, float]:
        controller.observe(LoadSample(host=HostFigures(cpu_percent=cpu_percent)))
        return controller.state, controller.delay_s(Group.LOCK)

    steps = [observe(percent) for percent in (75, 80, 0, 0, 0, 0)]

    assert steps[0] == (State.SOFT_ARM, 1.5)  # Half way from soft to hard.
    assert steps[1] == (State.ENGAGED, 2.0)
    # Two healthy samples for each step down.
    assert [state for state, _ in steps[2:]] == [
        State.ENGAGED,
        State.RECOVERY,
        State.RECOVERY,
        State.DISENGAGED,
    ]
    assert {delay_s for _, delay_s in steps[2:]} == {0.0}  # No figure is at a limit any more.


def test_the_delays_are_those_of_the_settings() -> None:
    controller = controller_of(
        _settings(qrf_cpu_soft_limit_percent=70, qrf_cpu_hard_limit_percent=80, qrf_engaged_delay_s="2s")
    )

    controller.observe(LoadSample(host=HostFigures(cpu_percent=80)))

    assert controller.delay_s(Group.LOCK) == 2.0


def test_a_turn_takes_new_work_up_to_the_soft_limit_of_the_lag() -> None:
    assert turn_budget_s(_settings()) == 0.05
    assert turn_budget_s(_settings(qrf_lag_soft_limit_s=0, qrf_lag_hard_limit_s=0.3)) == 0.3
