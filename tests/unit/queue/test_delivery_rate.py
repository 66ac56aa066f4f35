"""The pace of a queue: an allowance that grows with time."""

from holdfast.queue.layer.dispatch.dispatcher import DeliveryRate


def test_without_a_rate_anything_may_leave() -> None:
    assert DeliveryRate(0.0, 0).allowed(0) is None


def test_a_second_s_worth_may_leave_at_once_and_then_by_the_rate() -> None:
    pace = DeliveryRate(10.0, 0)
    assert pace.allowed(0) == 10
    pace.spend(10)

    assert pace.allowed(50) == 0
    assert pace.allowed(100) == 1
    pace.spend(1)
    assert pace.allowed(10_000) == 10


def test_a_slow_rate_lets_one_leave_in_its_time() -> None:
    pace = DeliveryRate(0.1, 0)
    assert pace.allowed(0) == 1
    pace.spend(1)

    assert pace.allowed(9_000) == 0
    assert pace.next_ms() > 9_000
    assert pace.allowed(pace.next_ms()) == 1
