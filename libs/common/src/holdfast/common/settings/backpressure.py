"""Settings of the load sampler (LSF) and of the throttle it steers (QRF)."""

from holdfast.common.settings.flag import SettingsGroup, setting
from holdfast.common.settings.value import DurationS, SizeBytes

_GROUP = "back-pressure"


class BackpressureFields(SettingsGroup):
    """When requests are slowed down. A limit of 0 is off."""

    qrf_disabled: bool = setting(_GROUP, "qrf-disabled", False, "Never throttle.")
    qrf_wait_s_max: DurationS = setting(
        _GROUP, "qrf-max-wait", "5s", "Longest delay; a request that needs more is answered 429.", ge=0
    )
    qrf_recovery_samples: int = setting(
        _GROUP, "qrf-recovery-samples", 5, "Healthy samples before the throttle steps down.", ge=1, le=100_000
    )
    qrf_soft_delay_s: DurationS = setting(
        _GROUP, "qrf-soft-delay", "50ms", "Base delay while soft_arm.", ge=0
    )
    qrf_engaged_delay_s: DurationS = setting(
        _GROUP, "qrf-engaged-delay", "250ms", "Base delay while engaged.", ge=0
    )
    qrf_recovery_delay_s: DurationS = setting(
        _GROUP, "qrf-recovery-delay", "200ms", "Base delay while in recovery.", ge=0, is_ignored=True
    )
    qrf_lag_soft_limit_s: DurationS = setting(
        _GROUP, "qrf-lag-soft-limit", "50ms", "Lateness of the server's own event loop, soft.", ge=0
    )
    qrf_lag_hard_limit_s: DurationS = setting(
        _GROUP,
        "qrf-lag-hard-limit",
        "150ms",
        "Lateness of the server's own event loop, hard: new work beyond the soft limit is answered 429.",
        ge=0,
    )
    qrf_queue_soft_limit: int = setting(
        _GROUP, "qrf-queue-soft-limit", 0, "Queue calls in flight, soft.", ge=0
    )
    qrf_queue_hard_limit: int = setting(
        _GROUP, "qrf-queue-hard-limit", 0, "Queue calls in flight, hard.", ge=0
    )
    qrf_queue_consumer_soft_limit: int = setting(
        _GROUP,
        "qrf-queue-consumer-soft-limit",
        0,
        "Waiting consumers, soft.",
        ge=0,
        default_text="75 % of the hard limit",
    )
    qrf_queue_consumer_hard_limit: int = setting(
        _GROUP,
        "qrf-queue-consumer-hard-limit",
        0,
        "Waiting consumers, hard.",
        ge=0,
        default_text="queue-max-consumers",
    )
    qrf_lock_soft_limit: int = setting(_GROUP, "qrf-lock-soft-limit", 0, "Lock calls in flight, soft.", ge=0)
    qrf_lock_hard_limit: int = setting(_GROUP, "qrf-lock-hard-limit", 0, "Lock calls in flight, hard.", ge=0)
    qrf_query_soft_limit: int = setting(_GROUP, "qrf-query-soft-limit", 0, "Queries in flight, soft.", ge=0)
    qrf_query_hard_limit: int = setting(_GROUP, "qrf-query-hard-limit", 0, "Queries in flight, hard.", ge=0)
    qrf_memory_soft_limit_bytes: SizeBytes = setting(
        _GROUP, "qrf-memory-soft-limit", "0B", "Memory of this process, soft."
    )
    qrf_memory_hard_limit_bytes: SizeBytes = setting(
        _GROUP, "qrf-memory-hard-limit", "0B", "Memory of this process, hard."
    )
    qrf_memory_soft_limit_percent: float = setting(
        _GROUP, "qrf-memory-soft-limit-percent", 95.0, "Memory of the machine in use, soft.", ge=0, le=100
    )
    qrf_memory_hard_limit_percent: float = setting(
        _GROUP, "qrf-memory-hard-limit-percent", 98.0, "Memory of the machine in use, hard.", ge=0, le=100
    )
    qrf_memory_strict_headroom_percent: float = setting(
        _GROUP,
        "qrf-memory-strict-headroom-percent",
        15.0,
        "Taken off the figure where reclaimable memory is not told apart.",
        ge=0,
        le=100,
    )
    qrf_swap_soft_limit_bytes: SizeBytes = setting(_GROUP, "qrf-swap-soft-limit", "0B", "Swap in use, soft.")
    qrf_swap_hard_limit_bytes: SizeBytes = setting(_GROUP, "qrf-swap-hard-limit", "0B", "Swap in use, hard.")
    qrf_swap_soft_limit_percent: float = setting(
        _GROUP, "qrf-swap-soft-limit-percent", 0.0, "Share of the swap in use, soft.", ge=0, le=100
    )
    qrf_swap_hard_limit_percent: float = setting(
        _GROUP, "qrf-swap-hard-limit-percent", 0.0, "Share of the swap in use, hard.", ge=0, le=100
    )
    qrf_cpu_soft_limit_percent: float = setting(
        _GROUP, "qrf-cpu-soft-limit", 0.0, "CPU of the machine in use, soft.", ge=0, le=100
    )
    qrf_cpu_hard_limit_percent: float = setting(
        _GROUP, "qrf-cpu-hard-limit", 0.0, "CPU of the machine in use, hard.", ge=0, le=100
    )
    qrf_load_soft_multiplier: float = setting(
        _GROUP, "qrf-load-soft-multiplier", 0.0, "Load over its usual level, soft.", ge=0, le=10_000
    )
    qrf_load_hard_multiplier: float = setting(
        _GROUP, "qrf-load-hard-multiplier", 0.0, "Load over its usual level, hard.", ge=0, le=10_000
    )
    lsf_sample_interval_s: DurationS = setting(
        _GROUP, "lsf-sample-interval", "200ms", "Time between two looks at the load.", ge=0.01
    )
    lsf_log_interval_s: DurationS = setting(
        _GROUP, "lsf-log-interval", "15s", "Time between two log lines of the load, 0 is none.", ge=0
    )
