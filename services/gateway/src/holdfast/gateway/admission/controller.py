"""When requests are held back (QRF): the rules, without I/O and without a clock.

    disengaged ──soft──► soft_arm ──hard──► engaged      any state ──hard──► engaged
    soft_arm   ──calm──► disengaged                      recovery  ──soft──► soft_arm
    engaged    ──calm──► recovery ──calm──► disengaged   engaged   ──soft──► engaged

`soft` and `hard` are limits reached in one sample; `calm` is a number of healthy samples in a row. A sample that is
neither starts that count again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from holdfast.common.express.traits import Group
from holdfast.gateway.admission.load_sample import InFlight, LoadSample

HEALTHY_PERCENT_BELOW: Final = 10.0
HEALTHY_BYTES_SHARE: Final = 0.9
SCALE_MIN: Final = 0.1


class State(StrEnum):
    """How much the plane defends itself."""

    DISENGAGED = "disengaged"
    SOFT_ARM = "soft_arm"
    ENGAGED = "engaged"
    RECOVERY = "recovery"


class Scope(Enum):
    """Whose fault it is when a trigger fires."""

    QUEUE = "queue"
    CONSUMERS = "consumers"
    LOCKS = "locks"
    QUERIES = "queries"
    HOST = "host"
    LAG = "lag"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A figure with its two limits (0 is off) and the value up to which it is healthy again."""

    name: str
    scope: Scope
    read: Callable[[LoadSample], float]
    soft: float
    hard: float
    healthy_max: float

    def has_hit_soft(self, sample: LoadSample) -> bool:
        return self.soft > 0 and self.read(sample) >= self.soft

    def has_hit_hard(self, sample: LoadSample) -> bool:
        return self.hard > 0 and self.read(sample) >= self.hard

    def scale(self, sample: LoadSample) -> float:
        """How far the figure is on its way from soft to hard, at least a tenth; 0 while it is below both."""
        if self.has_hit_hard(sample):
            return 1.0
        if not self.has_hit_soft(sample):
            return 0.0
        if self.hard <= self.soft:
            return 1.0
        return min(1.0, max(SCALE_MIN, (self.read(sample) - self.soft) / (self.hard - self.soft)))


def halving(
    name: str, scope: Scope, read: Callable[[LoadSample], float], *, soft: float, hard: float
) -> Trigger:
    """For counts, loads and times: healthy at half of the limit."""
    return Trigger(name, scope, read, soft, hard, (soft or hard) / 2)


def percentage(name: str, read: Callable[[LoadSample], float], *, soft: float, hard: float) -> Trigger:
    """For shares of the machine: healthy ten points below the limit."""
    return Trigger(name, Scope.HOST, read, soft, hard, max(0.0, (soft or hard) - HEALTHY_PERCENT_BELOW))


def size(name: str, read: Callable[[LoadSample], float], *, soft: float, hard: float) -> Trigger:
    """For bytes: memory is rarely given back by half, so a tenth below the limit is healthy."""
    return Trigger(name, Scope.HOST, read, soft, hard, (soft or hard) * HEALTHY_BYTES_SHARE)


@dataclass(frozen=True, slots=True)
class Delay:
    """What a held back request waits in one state: the base, scaled by the pressure, and a least time."""

    base_s: float
    min_s: float

    def scaled(self, scale: float) -> float:
        return max(self.min_s, self.base_s * scale) if self.base_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of the state machine."""

    before: State
    after: State
    reason: str


class Controller:
    """The state machine: one `observe` per sample, then one `delay_s` per group."""

    def __init__(
        self, triggers: Iterable[Trigger], delays: dict[State, Delay], *, recovery_samples: int
    ) -> None:
        self._triggers = [trigger for trigger in triggers if trigger.soft > 0 or trigger.hard > 0]
        self._delays = delays
        self._recovery_samples = recovery_samples
        self._healthy_samples = 0
        self.state = State.DISENGAGED
        self.sample = LoadSample()

    def observe(self, sample: LoadSample) -> Transition | None:
        """Take one more sample; the step it caused, if any."""
        self.sample = sample
        before = self.state
        self.state, reason = self._next(sample)
        return None if self.state is before else Transition(before, self.state, reason)

    def _next(self, sample: LoadSample) -> tuple[State, str]:
        hard = next((trigger for trigger in self._triggers if trigger.has_hit_hard(sample)), None)
        soft = next((trigger for trigger in self._triggers if trigger.has_hit_soft(sample)), None)
        if hard is not None:
            self._healthy_samples = 0
            return State.ENGAGED, f"{hard.name}_hard"
        if soft is not None:
            self._healthy_samples = 0
            is_engaged = self.state is State.ENGAGED
            return State.ENGAGED if is_engaged else State.SOFT_ARM, f"{soft.name}_soft"
        if self.state is State.DISENGAGED or not self._is_calm(sample):
            return self.state, ""
        return (State.RECOVERY if self.state is State.ENGAGED else State.DISENGAGED), "healthy"

    def _is_calm(self, sample: LoadSample) -> bool:
        is_healthy = all(trigger.read(sample) <= trigger.healthy_max for trigger in self._triggers)
        self._healthy_samples = self._healthy_samples + 1 if is_healthy else 0
        if self._healthy_samples < self._recovery_samples:
            return False
        self._healthy_samples = 0
        return True

    @property
    def refuses_late_work(self) -> bool:
        """Whether new work that comes too late in a turn of the event loop is refused."""
        return self.state is State.ENGAGED and any(trigger.scope is Scope.LAG for trigger in self._triggers)

    def delay_s(self, group: Group) -> float:
        """What a request of this group waits before it goes on, as of the last sample; 0 is nothing."""
        # In recovery no figure is at a limit, else the state would be another one: there is nothing to scale a delay by.
        if self.state in (State.DISENGAGED, State.RECOVERY):
            return 0.0
        scale = self._scale(group)
        return self._delays[self.state].scaled(scale) if scale > 0 else 0.0

    def _scale(self, group: Group) -> float:
        in_flight = self.sample.in_flight
        if group in (Group.CONSUMER, Group.ACK):
            return self._consumer_scale(in_flight)
        scope, own = {
            Group.PRODUCER: (Scope.QUEUE, in_flight.queue),
            Group.LOCK: (Scope.LOCKS, in_flight.locks),
            Group.QUERY: (Scope.QUERIES, in_flight.queries),
        }[group]
        # When nothing is in flight, 0 is the largest too: then every group counts as the cause.
        is_largest = own == max(in_flight.queue, in_flight.locks, in_flight.queries)
        return max(self._pressure(scope), self._pressure(Scope.HOST) if is_largest else 0.0)

    def _consumer_scale(self, in_flight: InFlight) -> float:
        """Consumers relieve a full queue, so they go on as long as producers outnumber them."""
        own = self._pressure(Scope.CONSUMERS)
        if in_flight.producers > in_flight.consumers and not self._is_hard(Scope.CONSUMERS):
            own = 0.0
        crowds_out = in_flight.consumers > in_flight.producers > 0
        if crowds_out and self.state is State.ENGAGED:
            own = max(own, self._pressure(Scope.QUEUE))
        return own

    def _pressure(self, scope: Scope) -> float:
        """The strongest of the triggers of one scope."""
        return max(
            (trigger.scale(self.sample) for trigger in self._triggers if trigger.scope is scope), default=0.0
        )

    def _is_hard(self, scope: Scope) -> bool:
        return any(trigger.scope is scope and trigger.has_hit_hard(self.sample) for trigger in self._triggers)
