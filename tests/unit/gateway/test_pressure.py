"""The state machine of the throttle, edge by edge, and who waits how long."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.express.traits import Group
from holdfast.gateway.admission.controller import (
    Controller,
    Delay,
    Scope,
    State,
    Transition,
    Trigger,
    halving,
    percentage,
    size,
)
from holdfast.gateway.admission.load_sample import HostFigures, InFlight, LoadSample

RECOVERY_SAMPLES = 3
DELAYS = {
    State.SOFT_ARM: Delay(0.050, 0.002),
    State.ENGAGED: Delay(0.250, 0.010),
}

CPU = percentage("cpu", lambda sample: sample.host.cpu_percent, soft=70, hard=85)
RSS = size("rss", lambda sample: sample.host.rss_bytes, soft=1000, hard=2000)
LOCKS = halving("lock_inflight", Scope.LOCKS, lambda sample: sample.in_flight.locks, soft=10, hard=20)
QUERIES = halving("query_inflight", Scope.QUERIES, lambda sample: sample.in_flight.queries, soft=10, hard=20)
QUEUE = halving("queue_inflight", Scope.QUEUE, lambda sample: sample.in_flight.queue, soft=10, hard=20)
CONSUMERS = halving(
    "queue_consumer", Scope.CONSUMERS, lambda sample: sample.in_flight.consumers, soft=8, hard=16
)
LAG = halving("lag", Scope.LAG, lambda sample: sample.lag_s, soft=0.05, hard=0.1)


def _controller(*triggers: Trigger) -> Controller:
    return Controller(triggers, DELAYS, recovery_samples=RECOVERY_SAMPLES)


def _cpu(percent: float) -> LoadSample:
    return LoadSample(host=HostFigures(cpu_percent=percent))


def _busy(cpu_percent: float = 0.0, **in_flight: int) -> LoadSample:
    return LoadSample(in_flight=InFlight(**in_flight), host=HostFigures(cpu_percent=cpu_percent))


CALM, SOFT, HARD, UNDECIDED = _cpu(60), _cpu(70), _cpu(85), _cpu(65)


@pytest.mark.parametrize(
    ("samples", "state"),
    [
        ([CALM], State.DISENGAGED),
        ([UNDECIDED], State.DISENGAGED),
        ([SOFT], State.SOFT_ARM),
        ([HARD], State.ENGAGED),
        ([SOFT, HARD], State.ENGAGED),
        ([HARD, SOFT], State.ENGAGED),
        ([SOFT, CALM, CALM], State.SOFT_ARM),
        ([SOFT, CALM, CALM, CALM], State.DISENGAGED),
        ([SOFT, CALM, CALM, UNDECIDED, CALM], State.SOFT_ARM),
        ([HARD, CALM, CALM], State.ENGAGED),
        ([HARD, CALM, CALM, CALM], State.RECOVERY),
        ([HARD, CALM, CALM, SOFT, CALM], State.ENGAGED),
        ([HARD, *[CALM] * 3, SOFT], State.SOFT_ARM),
        ([HARD, *[CALM] * 3, HARD], State.ENGAGED),
        ([HARD, *[CALM] * 5], State.RECOVERY),
        ([HARD, *[CALM] * 6], State.DISENGAGED),
    ],
)
def test_samples_lead_to_a_state(samples: list[LoadSample], state: State) -> None:
    controller = _controller(CPU)

    for sample in samples:
        controller.observe(sample)

    assert controller.state is state


def test_a_step_tells_where_from_where_to_and_why() -> None:
    controller = _controller(CPU, LOCKS)

    steps = [controller.observe(sample) for sample in (SOFT, SOFT, _busy(locks=20), *[CALM] * 3)]

    assert steps == [
        Transition(State.DISENGAGED, State.SOFT_ARM, "cpu_soft"),
        None,
        Transition(State.SOFT_ARM, State.ENGAGED, "lock_inflight_hard"),
        None,
        None,
        Transition(State.ENGAGED, State.RECOVERY, "healthy"),
    ]


@pytest.mark.parametrize(
    ("trigger", "healthy_max"), [(CPU, 60), (RSS, 900), (LOCKS, 5), (replace(LAG, soft=0.0), 0.025)]
)
def test_each_kind_of_figure_has_its_own_idea_of_healthy(trigger: Trigger, healthy_max: float) -> None:
    assert trigger.healthy_max == healthy_max


def test_a_trigger_with_a_hard_limit_only_is_healthy_by_that_one() -> None:
    trigger = percentage("cpu", lambda sample: sample.host.cpu_percent, soft=0, hard=80)

    assert trigger.healthy_max == 70
    assert not trigger.has_hit_soft(_cpu(79))
    assert trigger.scale(_cpu(80)) == 1.0


def test_limits_of_zero_are_off() -> None:
    controller = _controller(percentage("cpu", lambda sample: sample.host.cpu_percent, soft=0, hard=0))

    controller.observe(_cpu(100))

    assert controller.state is State.DISENGAGED


@pytest.mark.parametrize(
    ("cpu_percent", "scale"), [(69, 0.0), (70, 0.1), (71, 0.1), (77.5, 0.5), (85, 1.0), (100, 1.0)]
)
def test_the_scale_grows_from_soft_to_hard(cpu_percent: float, scale: float) -> None:
    assert CPU.scale(_cpu(cpu_percent)) == pytest.approx(scale)


@pytest.mark.parametrize(
    ("sample", "group", "delay_s"),
    [
        # The machine is busy: the largest group waits, or everybody when nothing is in flight.
        (_busy(85), Group.LOCK, 0.250),
        (_busy(85), Group.PRODUCER, 0.250),
        (_busy(85), Group.CONSUMER, 0.0),
        (_busy(77.5, locks=3), Group.LOCK, 0.025),
        (_busy(70, locks=3), Group.LOCK, 0.005),
        (_busy(85, locks=3, queries=2, producers=1), Group.LOCK, 0.250),
        (_busy(85, locks=3, queries=2, producers=1), Group.QUERY, 0.0),
        (_busy(85, locks=3, queries=2, producers=1), Group.PRODUCER, 0.0),
        (_busy(85, locks=3, producers=2, acks=2), Group.PRODUCER, 0.250),
        # A group is above its own limit.
        (_busy(locks=15), Group.LOCK, 0.025),
        (_busy(locks=20), Group.LOCK, 0.250),
        (_busy(locks=20), Group.QUERY, 0.0),
        (_busy(queries=20), Group.QUERY, 0.250),
        (_busy(producers=20), Group.PRODUCER, 0.250),
        # Consumers wait by their own limit, unless they are outnumbered; acks with them.
        (_busy(consumers=9), Group.CONSUMER, 0.00625),
        (_busy(consumers=9), Group.ACK, 0.00625),
        (_busy(consumers=8, producers=9), Group.CONSUMER, 0.0),
        (_busy(consumers=16, producers=17), Group.CONSUMER, 0.250),
        (_busy(consumers=7, producers=6, acks=7), Group.CONSUMER, 0.250),
        (_busy(consumers=7, producers=7, acks=6), Group.CONSUMER, 0.0),
        (_busy(consumers=7, producers=6), Group.CONSUMER, 0.0),
    ],
)
def test_who_waits_and_for_how_long(sample: LoadSample, group: Group, delay_s: float) -> None:
    controller = _controller(CPU, LOCKS, QUERIES, QUEUE, CONSUMERS)

    controller.observe(sample)

    assert controller.delay_s(group) == pytest.approx(delay_s)


def test_a_delay_has_a_least_time_and_a_base_of_zero_is_none() -> None:
    assert Delay(0.050, 0.010).scaled(0.1) == 0.010
    assert Delay(0.0, 0.010).scaled(1.0) == 0.0


def test_late_work_is_refused_only_while_engaged_and_only_with_a_limit_on_the_lag() -> None:
    by_lag, by_cpu = _controller(LAG), _controller(CPU)

    by_lag.observe(LoadSample(lag_s=0.06))
    was_refused_softly = by_lag.refuses_late_work
    by_lag.observe(LoadSample(lag_s=0.2))
    by_cpu.observe(HARD)

    assert not was_refused_softly
    assert by_lag.refuses_late_work
    assert not by_cpu.refuses_late_work
    assert all(by_lag.delay_s(group) == 0.0 for group in Group)


@given(st.lists(st.floats(0, 100), max_size=60))
def test_any_history_keeps_the_rules(percents: list[float]) -> None:
    controller = _controller(CPU)
    calm_in_a_row = 0

    for percent in percents:
        before = controller.state
        step = controller.observe(_cpu(percent))
        calm_in_a_row = calm_in_a_row + 1 if percent <= 60 else 0
        after = controller.state

        assert (step is None) == (before is after)
        if percent >= 85:
            assert after is State.ENGAGED
        elif percent >= 70:
            assert after is (State.ENGAGED if before is State.ENGAGED else State.SOFT_ARM)
        elif before is not after:
            assert calm_in_a_row >= RECOVERY_SAMPLES
            assert after is (State.RECOVERY if before is State.ENGAGED else State.DISENGAGED)


@given(st.builds(InFlight, *[st.integers(0, 40)] * 5), st.floats(0, 100), st.lists(st.just(CALM), max_size=7))
def test_a_delay_is_never_above_the_base_of_its_state(
    in_flight: InFlight, cpu_percent: float, calm: list[LoadSample]
) -> None:
    controller = _controller(CPU, LOCKS, QUERIES, QUEUE, CONSUMERS)
    sample = LoadSample(in_flight=in_flight, host=HostFigures(cpu_percent=cpu_percent))

    for one in (sample, *calm):
        controller.observe(one)
        for group in Group:
            delay_s = controller.delay_s(group)
            base_s = DELAYS[controller.state].base_s if controller.state in DELAYS else 0.0
            assert 0.0 <= delay_s <= base_s
