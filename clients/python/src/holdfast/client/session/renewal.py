"""When what is held has to be renewed: the plan of a client's one renewer. It does no I/O.

A renewal waits until it is due, is then ready, and runs as one of a job. Those that are ready go by the end of their
lease, the next one to end first. What ends before an answer came is lost at its end, not when the call gives up.

    add ──► WAITING ──due──► READY ──take──► RUNNING ──done──► WAITING …
               └───────────────┴───────────────┴──discard, lost──► ENDED
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, Final, Protocol

from holdfast.client.errors import ClientError, LeaseLost, TransportTimedOut
from holdfast.client.wire.flow import Flow

_TOGETHER_S_MAX: Final = 1.0
_TOGETHER_SHARE: Final = 0.1
"""A renewal goes along with an earlier one if that is no more than this share of its wait too soon."""
_TOGETHER_SHARE_RETRY: Final = 0.25
_RETRY_S_MIN: Final = 0.01
_SLACK_ENTRIES: Final = 1000


class Renewable(Protocol):
    """Something that ends by itself unless it is renewed in time: a lease of a key, or of a message."""

    def remaining_s(self) -> float | None:
        """None if that is not known."""
        ...

    def keepalive_in_s(self, *, after_failure: bool = False) -> float: ...

    def keepalive(self) -> Flow[int]: ...

    def verdict(self, problem: ClientError) -> LeaseLost | None: ...

    def lose(self, because: LeaseLost) -> None: ...


class Stage(Enum):
    """Where a renewal is."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Renewal:
    """One lease in the care of a renewer; `guard` is the lock that its calls are made under."""

    renewable: Renewable
    guard: Any
    can_be_batched: bool
    stage: Stage = Stage.WAITING
    due_s: float = 0.0
    together_s: float = 0.0
    """From here on it may go along with another one."""
    problem: ClientError = field(
        default_factory=lambda: TransportTimedOut("no answer before the lease ended")
    )

    @property
    def is_live(self) -> bool:
        return self.stage is not Stage.ENDED


Entry = tuple[float, int, Renewal]
Loss = tuple[Renewal, LeaseLost]


class Schedule:
    """Threads that share it hold a lock around each call."""

    def __init__(
        self, monotonic_s: Callable[[], float], chance: random.Random, *, jobs_max: int, batch_max: int
    ) -> None:
        self._monotonic_s = monotonic_s
        self._chance = chance
        self._jobs_max = jobs_max
        self._batch_max = batch_max
        self._numbers = count()
        self._waiting: list[Entry] = []
        self._ready: dict[bool, list[Entry]] = {True: [], False: []}
        """By whether they can be batched, each by the end of the lease."""
        self._ends: list[Entry] = []
        self._live: set[Renewal] = set()
        self._jobs = 0
        self._retry_share = 1.0

    @property
    def is_empty(self) -> bool:
        return not self._live

    def add(self, renewal: Renewal) -> bool:
        """Take it into care; true if it is the next one that is due."""
        self._live.add(renewal)
        self._wait(renewal, renewal.renewable.keepalive_in_s())
        return self._waiting[0][2] is renewal

    def move(self, renewal: Renewal) -> None:
        """Its holder moved its end: plan it anew."""
        if renewal.stage is Stage.WAITING:
            self._wait(renewal, renewal.renewable.keepalive_in_s())

    def discard(self, renewal: Renewal) -> None:
        """Renew it no more."""
        if renewal.is_live:
            renewal.stage = Stage.ENDED
            self._live.discard(renewal)
            self._drop_stale()

    def discard_all(self) -> None:
        """Another process renews them now."""
        for renewal in self._live:
            renewal.stage = Stage.ENDED
        self._live.clear()
        self._waiting, self._ends, self._ready = [], [], {True: [], False: []}
        self._jobs = 0

    def next_in_s(self) -> float | None:
        """How long nothing has to be done, unless something is added or done."""
        moments = [entries[0][0] for entries in (self._waiting, self._ends) if entries]
        return max(0.0, min(moments) - self._monotonic_s()) if moments else None

    def advance(self) -> list[Loss]:
        """Make ready what is due; returns what came to its end, which the caller tells its holder."""
        now_s = self._monotonic_s()
        losses: list[Loss] = []
        if (first := self._first_waiting()) is not None and first.due_s <= now_s:
            while (first := self._first_waiting()) is not None and first.together_s <= now_s:
                heapq.heappop(self._waiting)
                self._make_ready(first, losses)
        while self._ends and self._ends[0][0] <= now_s:
            renewal = heapq.heappop(self._ends)[2]
            if renewal.stage in (Stage.READY, Stage.RUNNING):
                if _is_over(renewal):
                    self._judge(renewal, renewal.problem, losses)
                else:
                    self._watch_end(renewal)  # Its holder has renewed it by hand.
        return losses

    def take(self, *, is_batch_allowed: bool) -> list[Renewal]:
        """What to send next, several only as a batch; nothing if nothing is ready or enough is under way."""
        if self._jobs >= self._jobs_max:
            return []
        for entries in self._ready.values():
            while entries and entries[0][2].stage is not Stage.READY:
                heapq.heappop(entries)
        found = [entries for entries in self._ready.values() if entries]
        if not found:
            return []
        entries = min(found, key=lambda entries: entries[0])
        size_max = self._batch_max if is_batch_allowed and entries[0][2].can_be_batched else 1
        job: list[Renewal] = []
        while entries and len(job) < size_max:
            renewal = heapq.heappop(entries)[2]
            if renewal.stage is Stage.READY:
                renewal.stage = Stage.RUNNING
                job.append(renewal)
        self._jobs += 1
        return job

    def put_back(self, job: list[Renewal]) -> None:
        """It was not sent, or not in a way that this server understands: ready as before."""
        self._jobs -= 1
        for renewal in job:
            if renewal.is_live:
                self._push_ready(renewal)

    def done(self, job: list[Renewal], problems: list[ClientError | None]) -> list[Loss]:
        """What became of each; returns those that are lost.

        Those that failed together are tried again together: each by itself, at a moment of its own, they would be
        hundreds of calls to a server that had no time for one.
        """
        self._jobs -= 1
        self._retry_share = self._chance.uniform(0.5, 1.0)
        losses: list[Loss] = []
        for renewal, problem in zip(job, problems, strict=True):
            if not renewal.is_live:
                continue
            if problem is None:
                self._wait(renewal, renewal.renewable.keepalive_in_s())
            else:
                self._judge(renewal, problem, losses)
        return losses

    def _first_waiting(self) -> Renewal | None:
        """The next one that is due, without entries of what was planned anew or is over."""
        while self._waiting and not _is_current(self._waiting[0]):
            heapq.heappop(self._waiting)
        return self._waiting[0][2] if self._waiting else None

    def _judge(self, renewal: Renewal, problem: ClientError, losses: list[Loss]) -> None:
        because = renewal.renewable.verdict(problem)
        if because is not None:
            losses.append((renewal, because))
            self.discard(renewal)
            return
        renewal.problem = problem
        retry_s = renewal.renewable.keepalive_in_s(after_failure=True)
        self._wait(renewal, max(_RETRY_S_MIN, retry_s * self._retry_share), early_share=_TOGETHER_SHARE_RETRY)

    def _wait(self, renewal: Renewal, seconds: float, *, early_share: float = _TOGETHER_SHARE) -> None:
        renewal.stage = Stage.WAITING
        renewal.due_s = self._monotonic_s() + seconds
        renewal.together_s = renewal.due_s - min(_TOGETHER_S_MAX, seconds * early_share)
        heapq.heappush(self._waiting, (renewal.due_s, next(self._numbers), renewal))
        self._drop_stale()

    def _make_ready(self, renewal: Renewal, losses: list[Loss]) -> None:
        if _is_over(renewal):
            self._judge(renewal, renewal.problem, losses)
            return
        self._push_ready(renewal)
        self._watch_end(renewal)

    def _push_ready(self, renewal: Renewal) -> None:
        renewal.stage = Stage.READY
        heapq.heappush(self._ready[renewal.can_be_batched], self._by_end(renewal))

    def _watch_end(self, renewal: Renewal) -> None:
        if renewal.renewable.remaining_s() is not None:
            heapq.heappush(self._ends, self._by_end(renewal))

    def _by_end(self, renewal: Renewal) -> Entry:
        """One whose end is not known may end now."""
        return self._monotonic_s() + (renewal.renewable.remaining_s() or 0.0), next(self._numbers), renewal

    def _drop_stale(self) -> None:
        """What was released leaves its entries behind until they come up: not more of them than of live ones."""
        if len(self._waiting) > 2 * len(self._live) + _SLACK_ENTRIES:
            self._waiting = [entry for entry in self._waiting if _is_current(entry)]
            heapq.heapify(self._waiting)
        if len(self._ends) > 2 * len(self._live) + _SLACK_ENTRIES:
            self._ends = [entry for entry in self._ends if entry[2].stage in (Stage.READY, Stage.RUNNING)]
            heapq.heapify(self._ends)


def _is_over(renewal: Renewal) -> bool:
    remaining_s = renewal.renewable.remaining_s()
    return remaining_s is not None and remaining_s <= 0


def _is_current(entry: Entry) -> bool:
    return entry[2].stage is Stage.WAITING and entry[2].due_s == entry[0]


def tell(losses: list[Loss]) -> None:
    """Each holder hears of its own."""
    for renewal, because in losses:
        renewal.renewable.lose(because)
