"""The plan of a renewer: what is due goes together, what ends first goes first, what ends is lost at its end."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.errors import ClientError, LeaseLost, TransportFailed
from holdfast.client.session.renewal import Renewal, Schedule, Stage
from holdfast.client.wire.flow import Flow
from holdfast.common.clock import FakeClock

JOBS_MAX, BATCH_MAX = 3, 4


class Held:
    """Something that ends; its clock is the test's."""

    def __init__(self, clock: FakeClock, ttl_s: float) -> None:
        self._clock = clock
        self.ttl_s = ttl_s
        self.lost_because: LeaseLost | None = None
        self.renew()

    def renew(self) -> None:
        self._end_s = self._clock.monotonic_s() + self.ttl_s

    def remaining_s(self) -> float | None:
        return self._end_s - self._clock.monotonic_s()

    def keepalive_in_s(self, *, after_failure: bool = False) -> float:
        remaining_s = self._end_s - self._clock.monotonic_s()
        return max(0.0, min(remaining_s, self.ttl_s / 20) if after_failure else remaining_s - self.ttl_s / 2)

    def keepalive(self) -> Flow[int]:
        raise AssertionError("the schedule sends nothing")

    def verdict(self, problem: ClientError) -> LeaseLost | None:
        if isinstance(problem, LeaseLost):
            return problem
        is_over = self._end_s <= self._clock.monotonic_s()
        return LeaseLost("lease_expired", str(problem)) if is_over else None

    def lose(self, because: LeaseLost) -> None:
        self.lost_because = because


class Plan:
    """A schedule, its clock and what it has in care."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.schedule = Schedule(
            self.clock.monotonic_s, random.Random(7), jobs_max=JOBS_MAX, batch_max=BATCH_MAX
        )

    def hold(self, ttl_s: float, *, can_be_batched: bool = True) -> Renewal:
        renewal = Renewal(Held(self.clock, ttl_s), None, can_be_batched)
        self.schedule.add(renewal)
        return renewal

    def take(self, *, is_batch_allowed: bool = True) -> list[Renewal]:
        assert self.schedule.advance() == []
        return self.schedule.take(is_batch_allowed=is_batch_allowed)

    def succeed(self, job: list[Renewal]) -> None:
        for renewal in job:
            held_of(renewal).renew()
        assert self.schedule.done(job, [None] * len(job)) == []


def held_of(renewal: Renewal) -> Held:
    assert isinstance(renewal.renewable, Held)
    return renewal.renewable


def test_a_lease_is_due_at_half_of_its_time() -> None:
    plan = Plan()
    renewal = plan.hold(10.0)

    next_in_s = plan.schedule.next_in_s()
    plan.clock.advance(4.9)
    early = plan.take()
    plan.clock.advance(0.1)
    job = plan.take()
    plan.succeed(job)

    assert (next_in_s, early, job) == (5.0, [], [renewal])
    assert plan.schedule.next_in_s() == 5.0


def test_leases_that_are_due_soon_go_along_with_the_one_that_is_due() -> None:
    plan = Plan()
    first = plan.hold(20.0)
    plan.clock.advance(0.5)
    second = plan.hold(20.0)
    plan.clock.advance(3.0)
    late = plan.hold(20.0)

    plan.clock.advance(6.5)
    job = plan.take()

    assert job == [first, second]
    assert late.stage is Stage.WAITING


def test_what_ends_first_goes_first_whenever_it_was_due() -> None:
    plan = Plan()
    long = plan.hold(60.0)
    plan.clock.advance(30.0)
    brief = [plan.hold(2.0) for _ in range(6)]
    plan.clock.advance(1.0)

    jobs = [plan.take(), plan.take()]

    assert jobs == [brief[:4], [*brief[4:], long]]


def test_without_batches_each_goes_alone_and_only_so_many_at_once() -> None:
    plan = Plan()
    held = [plan.hold(2.0) for _ in range(5)]
    plan.clock.advance(1.0)

    jobs = [plan.take(is_batch_allowed=False) for _ in range(5)]
    plan.succeed(jobs[0])
    after = plan.take(is_batch_allowed=False)

    assert jobs == [[held[0]], [held[1]], [held[2]], [], []]
    assert after == [held[3]]


def test_what_cannot_be_batched_is_never_part_of_one() -> None:
    plan = Plan()
    message = plan.hold(2.0, can_be_batched=False)
    leases = [plan.hold(2.0), plan.hold(2.0)]
    plan.clock.advance(1.0)

    assert [plan.take(), plan.take()] == [[message], leases]


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_lease_that_ends_without_an_answer_is_lost_at_its_end(is_taken: bool) -> None:
    plan = Plan()
    brief, long = plan.hold(2.0), plan.hold(3.0)
    plan.clock.advance(1.5)
    plan.schedule.advance()
    job = plan.schedule.take(is_batch_allowed=True) if is_taken else []

    wait_s = plan.schedule.next_in_s()
    plan.clock.advance(0.5)
    losses = plan.schedule.advance()
    late = plan.schedule.done(job, [None, None]) if is_taken else []

    assert wait_s == 0.5
    assert [(renewal, because.code) for renewal, because in losses] == [(brief, "lease_expired")]
    assert (late, brief.stage, long.is_live) == ([], Stage.ENDED, True)


def test_a_failed_renewal_is_tried_again_until_the_lease_ends() -> None:
    plan = Plan()
    renewal = plan.hold(10.0)
    plan.clock.advance(5.0)
    tries = 0
    losses: list[Any] = []
    while not losses:
        losses = plan.schedule.advance()
        if job := plan.schedule.take(is_batch_allowed=True):
            tries += 1
            losses = plan.schedule.done(job, [TransportFailed("the server is down")])
        plan.clock.advance(plan.schedule.next_in_s() or 0.0)

    assert tries >= 10
    assert losses[0][0] is renewal
    assert "the server is down" in losses[0][1].detail
    assert held_of(renewal).remaining_s() == pytest.approx(0.0, abs=0.02)
    assert plan.schedule.is_empty


def test_what_failed_together_is_tried_again_together_and_other_jobs_at_other_times() -> None:
    plan = Plan()
    held = [plan.hold(100.0) for _ in range(2 * BATCH_MAX)]
    plan.clock.advance(50.0)
    jobs = [plan.take(), plan.take()]
    for job in jobs:
        plan.schedule.done(job, [TransportFailed("down")] * BATCH_MAX)

    due_s = [{renewal.due_s for renewal in job} for job in jobs]
    plan.clock.advance(plan.schedule.next_in_s() or 0.0)
    again = plan.take()

    assert [len(moments) for moments in due_s] == [1, 1]
    assert due_s[0] != due_s[1]
    assert again in (held[:BATCH_MAX], held[BATCH_MAX:])


def test_one_that_is_refused_is_lost_and_the_others_go_on() -> None:
    plan = Plan()
    held = [plan.hold(2.0) for _ in range(3)]
    plan.clock.advance(1.0)
    job = plan.take()

    losses = plan.schedule.done(job, [None, LeaseLost("lease_required"), None])

    assert [renewal for renewal, _ in losses] == [held[1]]
    assert [renewal.stage for renewal in held] == [Stage.WAITING, Stage.ENDED, Stage.WAITING]


def test_what_was_not_taken_together_is_ready_at_once() -> None:
    plan = Plan()
    held = [plan.hold(2.0) for _ in range(2)]
    plan.clock.advance(1.0)
    job = plan.take()

    plan.schedule.put_back(job)

    assert [plan.take(is_batch_allowed=False) for _ in range(2)] == [[held[0]], [held[1]]]


def test_a_lease_whose_holder_shortened_it_is_due_earlier() -> None:
    plan = Plan()
    renewal = plan.hold(60.0)
    held = held_of(renewal)
    held.ttl_s = 4.0
    held.renew()

    plan.schedule.move(renewal)
    plan.clock.advance(2.0)

    assert plan.take() == [renewal]


def test_what_is_discarded_is_not_renewed_and_leaves_nothing_behind() -> None:
    plan = Plan()
    kept = plan.hold(10.0)
    for _ in range(5_000):
        plan.schedule.discard(plan.hold(60.0))

    plan.clock.advance(5.0)

    assert plan.take() == [kept]
    assert len(plan.schedule._waiting) < 2_000


@given(
    st.lists(st.tuples(st.sampled_from(["add", "discard", "pass", "work"]), st.integers(1, 40)), max_size=60)
)
def test_nothing_in_care_is_forgotten_or_lost_while_calls_succeed(steps: list[tuple[str, int]]) -> None:
    plan = Plan()
    live: list[Renewal] = []

    def work() -> None:
        assert plan.schedule.advance() == []
        while job := plan.schedule.take(is_batch_allowed=True):
            plan.succeed(job)

    for step, number in steps:
        if step == "add":
            live.append(plan.hold(float(number)))
        elif step == "discard" and live:
            plan.schedule.discard(live.pop(number % len(live)))
        elif step == "pass":
            # Time goes by in steps that a renewer would take: up to the next moment it asked for.
            plan.clock.advance(min(float(number), plan.schedule.next_in_s() or 0.0))
        work()
    for _ in range(50):
        plan.clock.advance(plan.schedule.next_in_s() or 0.0)
        work()

    assert all(renewal.is_live and (renewal.renewable.remaining_s() or 0) > 0 for renewal in live)
    assert plan.schedule.is_empty is (not live)


class Attached(Held):
    """Taken over from another process: when it ends is not known until it was renewed once."""

    is_known = False

    def renew(self) -> None:
        super().renew()
        self.is_known = True

    def remaining_s(self) -> float | None:
        return super().remaining_s() if self.is_known else None

    def keepalive_in_s(self, *, after_failure: bool = False) -> float:
        if self.is_known:
            return super().keepalive_in_s(after_failure=after_failure)
        return 0.5 if after_failure else 0.0


def test_what_ends_at_an_unknown_time_is_renewed_at_once() -> None:
    plan = Plan()
    held = Attached(plan.clock, 10.0)
    held.is_known = False
    renewal = Renewal(held, None, False)
    plan.schedule.add(renewal)

    first = plan.take()
    assert plan.schedule.done(first, [TransportFailed("cut off")]) == []
    pause_s = plan.schedule.next_in_s()
    plan.clock.advance(0.5)
    second = plan.take()
    plan.succeed(second)

    assert first == second == [renewal]
    assert pause_s is not None
    assert 0.2 <= pause_s <= 0.5


def test_what_is_in_the_care_of_another_process_is_discarded_in_every_stage() -> None:
    plan = Plan()
    held = [plan.hold(2.0) for _ in range(3)]
    plan.clock.advance(1.0)
    running = plan.take(is_batch_allowed=False)

    plan.schedule.discard_all()
    mine = plan.hold(2.0)
    for renewal in held:
        plan.schedule.discard(renewal)
    plan.clock.advance(1.0)

    assert plan.take() == [mine]
    assert running == [held[0]]
    assert {renewal.stage for renewal in held} == {Stage.ENDED}
