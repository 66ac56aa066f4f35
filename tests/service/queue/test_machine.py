"""A random walk through the life of messages, compared step by step with a list that is searched in full."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.grant import AcquireParams, Claim
from holdfast.leases.layer.records import HELD, held_range
from holdfast.queue.layer.errors import MessageLeaseExpired, MessageLeaseMismatch, MessageNotFound, NoMessages
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.records import TAKEN, member_of_message
from holdfast.queue.layer.message.types import Delivery, ExtendOrder, NackIntent
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.txn.layer.port import Decision, Member
from tests.service.queue.words import ORDERS, Queue, claim

# Small, so that the window has an end and what lies behind it matters.
LIMITS = QueueLimits(page_entries=2)
SECONDS = st.sampled_from([0, 1, 2, 5])
KEY = Member("default", "account")
ROWS_MAX = 1000


@dataclass
class Modelled:
    """One message as it must be."""

    id: str
    priority: int
    visible_at_ms: int
    max_attempts: int
    deadline_ms: int | None
    attempts: int = 0
    failures: int = 0
    token: int = 0
    lease_id: str = ""
    expires_at_ms: int = 0
    place_ms: int = 0


class Claimed(NamedTuple):
    """A delivery, and what the model knew of it then."""

    delivery: Delivery
    message: Modelled


@dataclass
class Model:
    """The whole queue."""

    messages: dict[str, Modelled] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)

    def let_pass(self, now_ms: int) -> None:
        """What time alone does."""
        for message in list(self.messages.values()):
            if message.lease_id and message.expires_at_ms > now_ms:
                continue
            failures = message.failures + bool(message.lease_id)
            if message.deadline_ms is not None and message.deadline_ms <= now_ms:
                del self.messages[message.id]
            elif failures >= message.max_attempts:
                self.bury(message)

    def bury(self, message: Modelled) -> None:
        del self.messages[message.id]
        self.dead.add(message.id)

    def ready(self, now_ms: int) -> list[Modelled]:
        visible = [message for message in self.messages.values() if self.due_ms(message) <= now_ms]
        return sorted(visible, key=lambda message: (message.priority, self.due_ms(message), message.id))

    @staticmethod
    def due_ms(message: Modelled) -> int:
        return message.expires_at_ms if message.lease_id else message.visible_at_ms

    def put_back(self, message: Modelled, visible_at_ms: int, now_ms: int, *, is_failure: bool) -> None:
        message.lease_id = ""
        message.visible_at_ms = visible_at_ms
        message.failures += is_failure
        if message.deadline_ms is not None and message.deadline_ms <= now_ms:
            del self.messages[message.id]
        elif message.failures >= message.max_attempts:
            self.bury(message)


class QueueMachine(RuleBasedStateMachine):
    """Rules are what producers, consumers, operators and time do."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.opened = open_memory(StoreOptions())
        self.queue = Queue(self.runner.run(self.opened.__aenter__()), LIMITS)
        self.running = self.queue.service.running()
        self.runner.run(self.running.__aenter__())
        self.model = Model()
        self.claimed: list[Claimed] = []
        self.decided: dict[str, Decision] = {}

    @property
    def now_ms(self) -> int:
        return self.queue.steady.now_ms()

    def end_ms(self, seconds: int) -> int:
        """Ends are whole seconds; what does not wait needs none."""
        return math.ceil((self.now_ms + seconds * 1000) / 1000) * 1000 if seconds else self.now_ms

    def teardown(self) -> None:
        self.runner.run(self.running.__aexit__(None, None, None))
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.runner.close()

    # -- producers

    @rule(
        delay_s=SECONDS,
        priority=st.sampled_from([-1, 0, 0, 0, 3]),
        ttl_s=st.sampled_from([0, 0, 3, 10]),
        max_attempts=st.integers(1, 3),
        count=st.integers(1, 12),
    )
    def enqueue(self, delay_s: int, priority: int, ttl_s: int, max_attempts: int, count: int) -> None:
        for _ in range(count):
            message = self.runner.run(
                self.queue.enqueue(delay_s=delay_s, priority=priority, ttl_s=ttl_s, max_attempts=max_attempts)
            )
            self.model.messages[message.message_id] = Modelled(
                message.message_id,
                priority,
                self.end_ms(delay_s),
                max_attempts,
                self.end_ms(ttl_s) if ttl_s else None,
            )

    # -- consumers

    @rule(count=st.integers(1, 5), visibility_s=st.integers(1, 4))
    def dequeue(self, count: int, visibility_s: int) -> None:
        expected = self.model.ready(self.now_ms)
        try:
            deliveries = self.runner.run(self.queue.dequeue_many(count_max=count, visibility_s=visibility_s))
        except NoMessages:
            assert not expected
            return
        ids = [delivery.message.message_id for delivery in deliveries]
        assert ids == [message.id for message in expected[: len(ids)]]
        for delivery in deliveries:
            self._claim(delivery, visibility_s)

    def _claim(self, delivery: Delivery, visibility_s: int) -> None:
        message = self.model.messages[delivery.message.message_id]
        message.place_ms = self.model.due_ms(message)
        message.failures += bool(message.lease_id)
        message.attempts += 1
        message.token += 1
        message.lease_id = delivery.lease_id
        message.expires_at_ms = self.end_ms(visibility_s)
        assert delivery.fencing_token == message.token
        assert delivery.message.attempts == message.attempts
        assert delivery.message.failure_attempts == message.failures
        self.claimed.append(Claimed(delivery, message))

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        delivery, message = data.draw(st.sampled_from(self.claimed))
        is_gone = message.id not in self.model.messages and message.id not in self.model.dead
        if is_gone and self.decided.get(delivery.txn_id) is Decision.COMMIT:
            self.runner.run(self.queue.ack(delivery))  # What a commit has acked may be acked again.
        elif self._resolves(delivery, message, self.queue.ack(delivery)):
            del self.model.messages[message.id]

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), delay_s=SECONDS, intent=st.sampled_from(NackIntent))
    def nack(self, data: st.DataObject, delay_s: int, intent: NackIntent) -> None:
        delivery, message = data.draw(st.sampled_from(self.claimed))
        current = delivery._replace(meta_etag="")
        if self._resolves(delivery, message, self.queue.nack(current, delay_s=delay_s, intent=intent)):
            self.model.put_back(
                message,
                self.end_ms(delay_s),
                self.now_ms,
                is_failure=intent is NackIntent.FAILURE,
            )

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), seconds=st.integers(1, 6))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        delivery, message = data.draw(st.sampled_from(self.claimed))
        order = ExtendOrder(claim(delivery)._replace(meta_etag=""), seconds)
        if self._resolves(delivery, message, self.queue.service.extend(order)):
            message.expires_at_ms = self.end_ms(seconds)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """A stream that never got the delivery gives it back, also if its time is over meanwhile."""
        delivery, message = data.draw(st.sampled_from(self.claimed))
        is_held = self.model.messages.get(message.id) is message and message.lease_id == delivery.lease_id
        self.runner.run(self.queue.service.give_back([delivery]))
        if is_held:
            message.attempts -= 1
            self.model.put_back(message, message.place_ms, self.now_ms, is_failure=False)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), decision=st.sampled_from(Decision))
    def join(self, data: st.DataObject, decision: Decision) -> None:
        """A key is taken under the id that a delivery minted, and decides on both, if the delivery lives."""
        delivery, message = data.draw(st.sampled_from(self.claimed))
        is_live = (
            self.model.messages.get(message.id) is message
            and message.lease_id == delivery.lease_id
            and message.expires_at_ms > self.now_ms
        )
        grant = self.runner.run(
            self.queue.leases.acquire(AcquireParams(KEY, "worker", 30, 0.0, delivery.txn_id))
        )
        held = Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
        self.runner.run(self.queue.leases.release(KEY, held, decision))
        self.decided[delivery.txn_id] = decision
        if is_live and decision is Decision.COMMIT:
            del self.model.messages[message.id]
        elif is_live:
            self.model.put_back(message, self.now_ms, self.now_ms, is_failure=False)

    def _resolves(self, delivery: Delivery, message: Modelled, call: "object") -> bool:
        """Whether the call is accepted; if it is refused, it must be for the right reason."""
        refusal: HoldfastError | None = None
        try:
            self.runner.run(call)  # type: ignore[arg-type]
        except (MessageNotFound, MessageLeaseMismatch, MessageLeaseExpired) as error:
            refusal = error
        if self.model.messages.get(message.id) is not message:
            # Gone; or, if time alone ended it, perhaps not looked at since.
            assert refusal is not None
        elif message.lease_id != delivery.lease_id:
            assert isinstance(refusal, MessageLeaseMismatch)
        elif message.expires_at_ms <= self.now_ms:
            assert isinstance(refusal, MessageLeaseExpired)
        else:
            assert refusal is None
            return True
        return False

    # -- operators and time

    @rule(milliseconds=st.sampled_from([1, 500, 1000, 2000, 7000]))
    def wait(self, milliseconds: int) -> None:
        self.queue.clock.advance(milliseconds / 1000)
        self.model.let_pass(self.now_ms)

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(sorted(self.model.dead)))
        [letter] = [
            letter
            for letter in self.runner.run(self.queue.service.dead_letters(ORDERS, 1000))
            if letter.message.message_id == message_id
        ]
        assert self.runner.run(self.queue.service.redrive(ORDERS, [message_id], 1)) == 1
        self.model.dead.discard(message_id)
        old = letter.message
        revived = Modelled(
            message_id, old.priority, self.now_ms, old.max_attempts, None, attempts=old.attempts
        )
        revived.token = max(
            (one.message.token for one in self.claimed if one.message.id == message_id), default=0
        )
        self.model.messages[message_id] = revived

    @precondition(lambda self: self.model.dead)
    @rule()
    def purge(self) -> None:
        count = self.runner.run(self.queue.service.purge(ORDERS, None, 1000))
        assert count == len(self.model.dead)
        self.model.dead.clear()

    @rule()
    def restart(self) -> None:
        """Memory is gone, the store is not."""
        self.runner.run(self.running.__aexit__(None, None, None))
        clock = self.queue.clock
        self.queue = Queue(self.queue.store, LIMITS, clock=clock)
        self.running = self.queue.service.running()
        self.runner.run(self.running.__aenter__())

    # -- at every moment

    @invariant()
    def what_would_leave_next_is_what_the_model_says(self) -> None:
        peeked = self.runner.run(self.queue.service.peek(ORDERS, 1000))
        ids = [message.message_id for message, _ in peeked]
        assert ids == [message.id for message in self.model.ready(self.now_ms)]

    @invariant()
    def dead_are_exactly_those_over_their_attempts(self) -> None:
        letters = self.runner.run(self.queue.service.dead_letters(ORDERS, 1000))
        assert {letter.message.message_id for letter in letters} == self.model.dead

    @invariant()
    def held_are_all_that_are_delivered_and_nothing_else(self) -> None:
        live, taken, held = self.runner.run(self._held())
        assert live <= held <= taken

    async def _held(self) -> tuple[set[bytes], set[bytes], set[bytes]]:
        """What has to be among the held members, what may be, and what is."""
        rows = await TAKEN.fetch_range(self.queue.store, *ORDERS, limit=ROWS_MAX)
        expiries_ms = {
            HELD.key(row.message.txn_id, *member_of_message(ORDERS, str(row.parts[-1]))): (
                row.message.expires_at_ms
            )
            for row in rows
        }
        live = {key for key, expires_at_ms in expiries_ms.items() if expires_at_ms > self.now_ms}
        records = await self.queue.store.range(*held_range(), limit=ROWS_MAX, keys_only=True)
        return live, set(expiries_ms), {record.key for record in records}


@pytest.mark.parametrize("examples", [30, pytest.param(400, marks=pytest.mark.long)])
def test_a_walk_through_the_life_of_messages_agrees_with_the_model(examples: int) -> None:
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
