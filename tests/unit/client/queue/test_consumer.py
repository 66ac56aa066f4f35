"""When a failed consumer starts again, what its hooks are told, and how all of them stop."""

import random

import pytest

from holdfast.client import (
    Consumer,
    ConsumerFailed,
    Forbidden,
    RequestRefused,
    RestartPolicy,
    Stop,
    TransportFailed,
)
from holdfast.client.queue.consumer import ConsumerLife, HandlerFailed


def life(**restart: float) -> ConsumerLife[object]:
    policy = RestartPolicy(**restart)  # type: ignore[arg-type]  # Whole numbers and fractions, by name.
    consumer = Consumer[object](queue="orders", handler=print, restart=policy)
    return ConsumerLife(consumer, random.Random(7))


def test_three_restarts_are_immediate_then_delays_double_to_five_minutes() -> None:
    consumer = life()

    delays_s: list[float] = []
    for _ in range(20):
        consumer.failed(TransportFailed("broken"))
        delays_s.append(consumer.delay_s(TransportFailed("broken")))

    assert delays_s[:7] == [0.0, 0.0, 0.0, 0.25, 0.5, 1.0, 2.0]
    assert delays_s[-1] == 300.0


def test_a_success_resets_the_count() -> None:
    consumer = life()
    for _ in range(5):
        consumer.failed(TransportFailed("broken"))

    consumer.succeeded()
    event = consumer.failed(TransportFailed("broken"))

    assert (event.failures, consumer.delay_s(TransportFailed("broken"))) == (1, 0.0)


def test_more_failures_than_allowed_end_it() -> None:
    consumer = life(max_failures=2)
    error = HandlerFailed(KeyError("x"))

    for _ in range(2):
        consumer.failed(error)
        consumer.delay_s(error)
    consumer.failed(error)

    with pytest.raises(ConsumerFailed, match="'orders'") as raised:
        consumer.delay_s(error)
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [RequestRefused("invalid_queue"), Forbidden("forbidden")])
def test_what_will_not_pass_ends_it_at_once(error: Exception) -> None:
    consumer = life()
    consumer.failed(error)

    with pytest.raises(ConsumerFailed):
        consumer.delay_s(error)


def test_the_same_error_of_a_handler_may_pass() -> None:
    consumer = life()
    error = HandlerFailed(RequestRefused("invalid_key"))

    event = consumer.failed(error)

    assert isinstance(event.error, RequestRefused)
    assert consumer.delay_s(error) == 0.0


def test_hooks_are_told_which_start_it_is() -> None:
    consumer = life()

    first, second = consumer.start(), consumer.start()

    assert (first.name, first.queue, first.attempt, second.attempt) == ("orders", "orders", 1, 2)


def test_each_consumer_has_an_owner_of_its_own() -> None:
    one, two = (Consumer[object](queue="orders", name="mailer", handler=print) for _ in range(2))

    owners = {one.owner_or_default(), two.owner_or_default()}

    assert len(owners) == 2
    assert all(owner.startswith("consumer-mailer-") for owner in owners)


def test_a_stop_reaches_those_who_come_before_and_after_it() -> None:
    stop = Stop()
    told: list[str] = []

    def early() -> None:
        told.append("early")

    def gone() -> None:
        told.append("gone")

    stop.add(early)
    stop.add(gone)
    stop.remove(gone)
    stop.set()
    stop.add(lambda: told.append("late"))

    assert (told, stop.is_set) == (["early", "late"], True)
