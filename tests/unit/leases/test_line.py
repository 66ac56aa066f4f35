"""The line of waiters: whoever stands first tries when the key may be free, and misses no call while it tries."""

from holdfast.leases.layer.wait_queue import Lines
from holdfast.txn.layer.port import Member

KEY = Member("default", "orders")


async def test_a_call_wakes_the_first_one_only() -> None:
    lines = Lines()
    first, second = lines.join(KEY), lines.join(KEY)

    lines.call(KEY)

    assert (first.turn.done(), second.turn.done()) == (True, False)


async def test_a_call_during_a_try_is_not_lost() -> None:
    lines = Lines()
    first = lines.join(KEY)
    first.begin_try()

    lines.call(KEY, 7)
    lines.wait_again(first, seen_revision=5)

    assert first.turn.done()


async def test_a_call_during_a_try_that_saw_something_newer_wakes_nobody() -> None:
    lines = Lines()
    first = lines.join(KEY)
    first.begin_try()

    lines.call(KEY, 5)
    lines.wait_again(first, seen_revision=7)
    lines.call(KEY, 6)

    assert not first.turn.done()


async def test_a_call_before_a_try_does_not_make_it_try_twice() -> None:
    lines = Lines()
    first = lines.join(KEY)
    lines.call(KEY)
    first.begin_try()

    lines.wait_again(first, seen_revision=5)

    assert not first.turn.done()


async def test_everybody_who_stands_first_is_called_when_anything_may_have_been_missed() -> None:
    lines = Lines()
    others = lines.join(Member("default", "others"))
    first, second = lines.join(KEY), lines.join(KEY)
    lines.wait_again(first, seen_revision=5)

    lines.call_firsts()

    assert [ticket.turn.done() for ticket in (others, first, second)] == [True, True, False]
