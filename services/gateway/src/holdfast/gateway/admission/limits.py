"""The limits of the throttle as the settings give them."""

from typing import Final

from holdfast.common.settings import PlaneSettings
from holdfast.gateway.admission.controller import (
    Controller,
    Delay,
    Scope,
    State,
    Trigger,
    halving,
    percentage,
    size,
)

CONSUMER_SOFT_SHARE: Final = 0.75
SOFT_DELAY_S_MIN: Final = 0.002
ENGAGED_DELAY_S_MIN: Final = 0.010


def controller_of(settings: PlaneSettings) -> Controller:
    """The state machine with the triggers that are on."""
    return Controller(
        [*_lag_triggers(settings), *_in_flight_triggers(settings), *_host_triggers(settings)],
        {
            State.SOFT_ARM: Delay(settings.qrf_soft_delay_s, SOFT_DELAY_S_MIN),
            State.ENGAGED: Delay(settings.qrf_engaged_delay_s, ENGAGED_DELAY_S_MIN),
        },
        recovery_samples=settings.qrf_recovery_samples,
    )


def turn_budget_s(settings: PlaneSettings) -> float:
    """How long one turn of the event loop may take new work while engaged."""
    return settings.qrf_lag_soft_limit_s or settings.qrf_lag_hard_limit_s


def _lag_triggers(settings: PlaneSettings) -> list[Trigger]:
    soft, hard = settings.qrf_lag_soft_limit_s, settings.qrf_lag_hard_limit_s
    return [halving("lag", Scope.LAG, lambda sample: sample.lag_s, soft=soft, hard=hard)]


def _in_flight_triggers(settings: PlaneSettings) -> list[Trigger]:
    consumers_hard = settings.qrf_queue_consumer_hard_limit or settings.queue_consumers_max
    consumers_soft = settings.qrf_queue_consumer_soft_limit or consumers_hard * CONSUMER_SOFT_SHARE
    return [
        halving(
            "queue_inflight",
            Scope.QUEUE,
            lambda sample: sample.in_flight.queue,
            soft=settings.qrf_queue_soft_limit,
            hard=settings.qrf_queue_hard_limit,
        ),
        halving(
            "queue_consumer",
            Scope.CONSUMERS,
            lambda sample: sample.in_flight.consumers,
            soft=consumers_soft,
            hard=consumers_hard,
        ),
        halving(
            "lock_inflight",
            Scope.LOCKS,
            lambda sample: sample.in_flight.locks,
            soft=settings.qrf_lock_soft_limit,
            hard=settings.qrf_lock_hard_limit,
        ),
        halving(
            "query_inflight",
            Scope.QUERIES,
            lambda sample: sample.in_flight.queries,
            soft=settings.qrf_query_soft_limit,
            hard=settings.qrf_query_hard_limit,
        ),
    ]


def _host_triggers(settings: PlaneSettings) -> list[Trigger]:
    return [
        percentage(
            "memory",
            lambda sample: sample.host.memory_percent,
            soft=settings.qrf_memory_soft_limit_percent,
            hard=settings.qrf_memory_hard_limit_percent,
        ),
        size(
            "rss",
            lambda sample: sample.host.rss_bytes,
            soft=settings.qrf_memory_soft_limit_bytes,
            hard=settings.qrf_memory_hard_limit_bytes,
        ),
        size(
            "swap",
            lambda sample: sample.host.swap_bytes,
            soft=settings.qrf_swap_soft_limit_bytes,
            hard=settings.qrf_swap_hard_limit_bytes,
        ),
        percentage(
            "swap_percent",
            lambda sample: sample.host.swap_percent,
            soft=settings.qrf_swap_soft_limit_percent,
            hard=settings.qrf_swap_hard_limit_percent,
        ),
        percentage(
            "cpu",
            lambda sample: sample.host.cpu_percent,
            soft=settings.qrf_cpu_soft_limit_percent,
            hard=settings.qrf_cpu_hard_limit_percent,
        ),
        halving(
            "load",
            Scope.HOST,
            lambda sample: sample.host.load_multiplier,
            soft=settings.qrf_load_soft_multiplier,
            hard=settings.qrf_load_hard_multiplier,
        ),
    ]
