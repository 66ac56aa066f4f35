"""Who is let in, who waits and who is sent away: the hook that every hot request passes before its handler.

While nothing is wrong a request costs two counts and one look at a flag. The flags are set once per sample, by
`Admission.apply`; only a gate that is not open is looked at any closer.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.express.execution import Gate
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Admission as Declared
from holdfast.common.express.traits import Begins, Group
from holdfast.gateway.admission.controller import Controller, State
from holdfast.gateway.admission.load_sample import InFlight

RETRY_AFTER_S_MIN: Final = 1.0
_FLOOD: Final = 5.0  # A turn of so many budgets has more connections to serve than it should.
_BLOCK_S_MAX: Final = 86_400  # Longer than any delay, and no number too large for a float.


class Throttled(HoldfastError):
    """The server defends itself against overload; try again later."""

    code, status = "throttled", 429

    def __init__(self, state: State, *, retry_after_s: float) -> None:
        super().__init__("perimeter defence engaged", retry_after_s=max(RETRY_AFTER_S_MIN, retry_after_s))
        self.state = state

    def headers(self) -> Mapping[str, str]:
        return {"X-Lockd-QRF-State": self.state.value}


class HeldTooLong(HoldfastError):
    """The server holds requests back for longer than the caller may wait."""

    code, status = "waiting", 409


class AdmissionGate(Gate):
    """What one path counts, and what its next request has to expect."""

    __slots__ = ("_admission", "declared", "delay_s", "held", "refused", "waiting")

    def __init__(self, admission: "Admission", declared: Declared) -> None:
        super().__init__()
        self._admission = admission
        self.declared = declared
        self.delay_s = 0.0
        self.held = 0
        self.refused = 0
        self.waiting = 0

    def look(self, request: Request) -> Awaitable[None] | None:
        return self._admission.look(self, request)

    @property
    def group(self) -> Group:
        return self.declared.group

    @property
    def in_flight(self) -> int:
        return self.entered - self.left - self.waiting


class Turn:
    """What the event loop has worked since it last looked for new requests, in CPU time of its thread.

    CPU time and not the clock: a process that others keep from running has not taken too much work. The loop is
    asked to mark the next turn as long as new work comes in every turn; after one without, it is left alone.
    """

    __slots__ = (
        "_began_s",
        "_call_soon",
        "_cpu_s",
        "_has_begun_work",
        "_is_asked_for",
        "_is_watched",
        "_longest_s",
        "spent_s",
    )

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], cpu_s: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._cpu_s = cpu_s
        self._began_s = 0.0
        self._is_watched = False
        self._is_asked_for = False
        self._has_begun_work = False
        self._longest_s = 0.0
        self.spent_s = 0.0

    def is_over(self, budget_s: float) -> bool:
        """Whether this turn has no time left for new work; its first piece is always taken, so no group starves."""
        if not self._is_watched:
            # The begin of this turn was not seen: what the thread did since the last one that was watched does not count.
            self._is_watched = True
            self.begin()
        self._is_asked_for = True
        spent_s = self.spent_s = self._cpu_s() - self._began_s
        if spent_s < budget_s or not self._has_begun_work:
            self._has_begun_work = True
            return False
        self._longest_s = max(self._longest_s, spent_s)
        return True

    def begin(self) -> None:
        self._began_s = self._cpu_s()
        self._has_begun_work = False
        self._call_soon(self._end)

    def _end(self) -> None:
        if self._is_asked_for:
            self._is_asked_for = False
            self.begin()
        else:
            self._is_watched = False

    def take_longest_s(self) -> float:
        """The longest turn that refused work since the last call; 0 when none did."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s


class Admission:
    """The gates of all paths, which are a hook of the app.

    A flooded event loop may read requests for seconds before it looks at its timers (libuv polls again as long as it
    finds 1024 ready sockets), so requests themselves look at the clock now and then: after `overdue_s`, in monotonic
    time, they call `on_overdue`.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        wait_s_max: float,
        turn_budget_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self.controller = controller
        self._cpu_s = cpu_s
        self._sleep = sleep
        self._wait_s_max = wait_s_max
        self._turn_budget_s = turn_budget_s
        self._turn: Turn | None = None
        self.overdue_s = math.inf
        self.on_overdue: Callable[[], None] = lambda: None
        self.gates: dict[str, AdmissionGate] = {}

    def guard(self, routers: Sequence[ExpressRouter]) -> None:
        """Give every path whose routes ask for it a gate, and add the refusal to what the docs say of them."""
        for router in routers:
            router.routes[:] = [self._guarded(route) for route in router.routes]

    def _guarded(self, route: Route) -> Route:
        declared = route.traits.admission
        if declared is None:
            return route
        if self.gates.setdefault(route.path, AdmissionGate(self, declared)).declared != declared:
            raise ValueError(f"{route.path}: the routes of one path are admitted alike")
        return replace(route, errors=(*route.errors, Throttled))

    def look(self, gate: AdmissionGate, request: Request) -> Awaitable[None] | None:
        """For a request at a closed gate, and for some at open ones."""
        if time.monotonic() > self.overdue_s:
            self.on_overdue()
        return None if gate.is_open else self._hold(gate, request)

    # Once per sample.

    def in_flight(self) -> InFlight:
        counts = dict.fromkeys(Group, 0)
        for gate in self.gates.values():
            counts[gate.group] += gate.in_flight
        return InFlight(
            producers=counts[Group.PRODUCER],
            consumers=counts[Group.CONSUMER],
            acks=counts[Group.ACK],
            locks=counts[Group.LOCK],
            queries=counts[Group.QUERY],
        )

    def apply(self) -> None:
        """Set every gate as the controller decided by its last sample."""
        is_shedding = self.controller.refuses_late_work
        if not is_shedding:
            self._turn = None
        elif self._turn is None:
            self._turn = Turn(asyncio.get_running_loop().call_soon, self._cpu_s)
        delays_s = {group: self.controller.delay_s(group) for group in Group}
        for gate in self.gates.values():
            gate.delay_s = delays_s[gate.group]
            gate.is_open = gate.delay_s <= 0 and not (
                is_shedding and gate.declared.begins is not Begins.NEVER
            )

    def take_longest_turn_s(self) -> float:
        return 0.0 if self._turn is None else self._turn.take_longest_s()

    # The slow path.

    def _hold(self, gate: AdmissionGate, request: Request) -> Awaitable[None] | None:
        turn = self._turn
        if turn is not None and _begins_work(gate, request) and turn.is_over(self._turn_budget_s):
            gate.refused += 1
            refusal = Throttled(self.controller.state, retry_after_s=RETRY_AFTER_S_MIN)
            if turn.spent_s > _FLOOD * self._turn_budget_s:
                return _refuse_next_turn(refusal)
            raise refusal
        return self._wait(gate, request) if gate.delay_s > 0 else None

    async def _wait(self, gate: AdmissionGate, request: Request) -> None:
        delay_s, state = gate.delay_s, self.controller.state
        is_refused = delay_s > self._wait_s_max or self._wait_s_max <= 0
        pause_s = min(delay_s, max(0.0, self._wait_s_max))
        block_s = _block_s(gate, request) if pause_s >= 1 else None  # Deadlines are whole seconds.
        is_too_late = block_s is not None and block_s < pause_s
        gate.held += 1
        gate.waiting += 1
        try:
            await self._sleep(block_s if block_s is not None and is_too_late else pause_s)
        finally:
            gate.waiting -= 1
        if is_too_late:
            raise HeldTooLong(
                "the server holds requests back for longer than this one may wait", retry_after_s=1
            )
        if is_refused:
            gate.refused += 1
            raise Throttled(state, retry_after_s=math.ceil(delay_s))


async def _refuse_next_turn(refusal: Throttled) -> None:
    """Answers that go out at once are followed by the next requests in the same turn, which then may never end."""
    await asyncio.sleep(0)
    raise refusal


def _begins_work(gate: AdmissionGate, request: Request) -> bool:
    begins = gate.declared.begins
    return begins is Begins.ALWAYS or (begins is Begins.IF_PUBLIC and b"public=" in request.query_string)


def _block_s(gate: AdmissionGate, request: Request) -> float | None:
    """The seconds that the caller may wait; None where it cannot say so, and for one that waits without limit."""
    if gate.declared.wait_s is None:
        return None
    try:
        block_s = gate.declared.wait_s(request)
    except ValueError:
        return None  # The handler says what is wrong with it.
    return float(min(block_s, _BLOCK_S_MAX)) if block_s is not None and block_s > 0 else None
