"""Back-pressure at work: samples the load, steps the controller, sets the gates, and tells logs and metrics."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from holdfast.common.background import background
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Group
from holdfast.common.logging import get_logger
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.gateway.admission.controller import Controller, State, Transition
from holdfast.gateway.admission.gates import Admission
from holdfast.gateway.admission.limits import controller_of, turn_budget_s
from holdfast.gateway.admission.load_sample import HostFigures, HostProbe, LoadSample

_STATE_NUMBERS: Final = {state: float(number) for number, state in enumerate(State)}

_controller_log = get_logger("control.qrf.controller")
_observer_log = get_logger("control.lsf.observer")


class Backpressure:
    """A part of the gateway's app without routes of its own; its `admission` is the app's hook."""

    routers: Sequence[ExpressRouter] = ()

    def __init__(self, settings: PlaneSettings, registry: Registry) -> None:
        self._interval_s = settings.lsf_sample_interval_s
        self._log_interval_s = settings.lsf_log_interval_s
        self._headroom_percent = settings.qrf_memory_strict_headroom_percent
        self._controller = controller_of(settings)
        self.admission = Admission(
            self._controller, wait_s_max=settings.qrf_wait_s_max, turn_budget_s=turn_budget_s(settings)
        )
        self._lag_s_max = settings.qrf_lag_hard_limit_s
        self.admission.on_overdue = self._observe_overdue
        self._metrics = _Metrics(registry, self._controller)

    def running(self, layers: object) -> AbstractAsyncContextManager[None]:
        """As a part of an app over layers, which are of no interest here."""
        return self.sampling()

    @asynccontextmanager
    async def sampling(self) -> AsyncIterator[None]:
        """Sample for the length of the block."""
        probe = HostProbe(strict_headroom_percent=self._headroom_percent)
        try:
            async with background(self._sample(probe), name="gateway.backpressure"):
                yield
        finally:
            self.admission.overdue_s = math.inf
            probe.close()

    async def _sample(self, probe: HostProbe) -> None:
        logged_s = time.monotonic()
        while True:
            due_s = self._expect_sample()
            await asyncio.sleep(self._interval_s)
            now_s = time.monotonic()
            self.observe(max(0.0, now_s - due_s), probe.read())
            if 0 < self._log_interval_s <= now_s - logged_s:
                logged_s = now_s
                _observer_log.debug("holdfast.lsf.sample", **self._controller.sample.shown())

    def _expect_sample(self) -> float:
        """When the next sample is due; requests that see the clock long after that take it themselves."""
        due_s = time.monotonic() + self._interval_s
        self.admission.overdue_s = due_s + (self._lag_s_max or math.inf)
        return due_s

    def _observe_overdue(self) -> None:
        lateness_s = time.monotonic() - self.admission.overdue_s + self._lag_s_max
        self._expect_sample()
        self.observe(lateness_s, self._controller.sample.host)

    def observe(self, lateness_s: float, host: HostFigures) -> None:
        """One sample: how late the loop woke up, and how the machine does."""
        # A turn that had to refuse work was too long, even if the loop was in time for this very sample.
        lag_s = max(lateness_s, self.admission.take_longest_turn_s())
        sample = LoadSample(lag_s, self.admission.in_flight(), host)
        transition = self._controller.observe(sample)
        self.admission.apply()
        self._metrics.count(self.admission)
        if transition is not None:
            self._metrics.count_transition(transition)
            _tell(transition, sample)


def _tell(transition: Transition, sample: LoadSample) -> None:
    log = _controller_log.warn if transition.after is State.ENGAGED else _controller_log.info
    log(
        f"holdfast.qrf.{transition.after}",
        previous_state=transition.before.value,
        reason=transition.reason,
        **sample.shown(),
    )


class _Metrics:
    """The figures of the last sample, and what the gates counted until then."""

    def __init__(self, registry: Registry, controller: Controller) -> None:
        _show_load(registry, lambda: controller.sample)
        registry.gauge(
            "holdfast.qrf.state",
            "0 disengaged, 1 soft_arm, 2 engaged, 3 recovery.",
            callback=lambda: _STATE_NUMBERS[controller.state],
        )
        self._decisions = registry.counter(
            "holdfast.qrf.decision", "Requests that were let in or refused, by group.", ("group", "decision")
        )
        self._throttled = registry.counter(
            "holdfast.qrf.throttle", "Requests that were delayed or refused, by group.", ("group", "action")
        )
        self._transitions = registry.counter(
            "holdfast.qrf.transition", "Steps of the throttle from state to state.", ("previous", "state")
        )

    def count(self, admission: Admission) -> None:
        for group in Group:
            gates = [gate for gate in admission.gates.values() if gate.group is group]
            refused = sum(gate.refused for gate in gates)
            self._decisions.labels(group, "allow").value = sum(gate.entered for gate in gates) - refused
            self._decisions.labels(group, "refuse").value = refused
            self._throttled.labels(group, "delay").value = sum(gate.held for gate in gates)
            self._throttled.labels(group, "refuse").value = refused

    def count_transition(self, transition: Transition) -> None:
        self._transitions.labels(transition.before, transition.after).inc()


def _show_load(registry: Registry, sample: Callable[[], LoadSample]) -> None:
    def show(name: str, help_text: str, read: Callable[[LoadSample], float], unit: str = "") -> None:
        registry.gauge(f"holdfast.lsf.{name}", help_text, unit=unit, callback=lambda: float(read(sample())))

    show("lag", "How late the event loop was.", lambda of: of.lag_s * 1000, "ms")
    show("queue.inflight", "Queue calls in flight.", lambda of: of.in_flight.queue)
    show("lock.inflight", "Lock and state calls in flight.", lambda of: of.in_flight.locks)
    show("query.inflight", "Queries in flight.", lambda of: of.in_flight.queries)
    show("rss.bytes", "Memory of this process.", lambda of: of.host.rss_bytes, "By")
    show("swap.bytes", "Swap of the machine in use.", lambda of: of.host.swap_bytes, "By")
    show("swap.percent", "Share of the swap in use.", lambda of: of.host.swap_percent, "%")
    show("memory.percent", "Memory of the machine in use.", lambda of: of.host.memory_percent, "%")
    show("cpu.percent", "CPU of the machine in use.", lambda of: of.host.cpu_percent, "%")
    registry.gauge(
        "holdfast.lsf.load",
        "Load of the machine over 1, 5 and 15 minutes.",
        ("minutes",),
        callback=lambda: {
            ("1",): sample().host.load_1,
            ("5",): sample().host.load_5,
            ("15",): sample().host.load_15,
        },
    )
    show("load.baseline", "The usual load.", lambda of: of.host.load_baseline)
    show("load.multiplier", "Load over its usual level.", lambda of: of.host.load_multiplier)
