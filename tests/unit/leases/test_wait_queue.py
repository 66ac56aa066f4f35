"""The queue of waiters: the first one tries when the key may be free, and misses no call while it tries."""

from holdfast.leases.layer.wait_queue import WaitQueues
from holdfast.txn.layer.port import Member

KEY = Member("default", "orders")


async def test_a_call_wakes_the_first_one_only() -> None:
    queues = WaitQueues()
    first, second = queues.enqueue(KEY), queues.enqueue(KEY)

    queues.notify(KEY)

    assert (first.turn.done(), second.turn.done()) == (True, False)


async def test_a_call_during_a_try_is_not_lost() -> None:
    queues = WaitQueues()
    first = queues.enqueue(KEY)
    first.begin_try()

    queues.notify(KEY, 7)
    queues.wait_again(first, seen_revision=5)

    assert first.turn.done()


async def test_a_call_during_a_try_that_saw_something_newer_wakes_nobody() -> None:
    queues = WaitQueues()
    first = queues.enqueue(KEY)
    first.begin_try()

    queues.notify(KEY, 5)
    queues.wait_again(first, seen_revision=7)
    queues.notify(KEY, 6)

    assert not first.turn.done()


async def test_a_call_before_a_try_does_not_make_it_try_twice() -> None:
    queues = WaitQueues()
    first = queues.enqueue(KEY)
    queues.notify(KEY)
    first.begin_try()

    queues.wait_again(first, seen_revision=5)

    assert not first.turn.done()


async def test_everybody_who_stands_first_is_called_when_anything_may_have_been_missed() -> None:
    queues = WaitQueues()
    others = queues.enqueue(Member("default", "others"))
    first, second = queues.enqueue(KEY), queues.enqueue(KEY)
    queues.wait_again(first, seen_revision=5)

    queues.notify_firsts()

    assert [waiter.turn.done() for waiter in (others, first, second)] == [True, True, False]
