"""Identifiers are canonical, unique and ordered, also when the clock is not."""

import base64
import itertools
import os
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.common.clock import FakeClock
from holdfast.common.ids import SNOWFLAKE_EPOCH_MS, MarkedXids, Snowflake, is_xid, new_xid, uuid7


def decode_xid(text: str) -> bytes:
    return base64.b32hexdecode(text.upper() + "====")


def test_an_xid_is_twelve_bytes_in_twenty_canonical_characters() -> None:
    text = new_xid()

    assert len(text) == 20
    assert is_xid(text)
    assert base64.b32hexencode(decode_xid(text)).decode().rstrip("=").lower() == text


def test_an_xid_holds_the_second_and_the_process_of_its_birth() -> None:
    before = int(time.time())

    raw = decode_xid(new_xid())

    assert before <= int.from_bytes(raw[:4], "big") <= int(time.time())
    assert int.from_bytes(raw[7:9], "big") == os.getpid() & 0xFFFF


def test_the_xid_counter_grows_by_one_and_wraps() -> None:
    counters = [int.from_bytes(decode_xid(new_xid())[9:], "big") for _ in range(100)]

    assert all((after - before) % 2**24 == 1 for before, after in itertools.pairwise(counters))


def test_a_marked_xid_is_known_wherever_the_same_name_is() -> None:
    before = int(time.time())

    minted = [MarkedXids("a store").new() for _ in range(100)]

    assert all(is_xid(text) for text in minted)
    assert all(before <= int.from_bytes(decode_xid(text)[:4], "big") <= int(time.time()) for text in minted)
    assert all(MarkedXids("a store").has(text) for text in minted)
    assert not any(MarkedXids("another store").has(text) for text in minted)


def test_an_xid_that_bears_no_mark_is_not_taken_for_one_that_does() -> None:
    random_bytes = random.Random(13).randbytes
    machine = random_bytes(5)  # As a client mints its ids: all of them bear its machine and its process.
    foreign = [random_bytes(4) + machine + random_bytes(3) for _ in range(5_000)]
    foreign += [random_bytes(12) for _ in range(5_000)]

    marked = MarkedXids("a store")

    assert not any(marked.has(base64.b32hexencode(raw).decode().rstrip("=").lower()) for raw in foreign)
    assert not marked.has(new_xid())


def test_marked_and_other_xids_of_many_threads_are_all_different() -> None:
    marked = MarkedXids("a store")

    def make(count: int) -> list[str]:
        return [one for _ in range(count) for one in (marked.new(), new_xid())]

    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(make, [1000] * 8))

    assert len({text for batch in batches for text in batch}) == 16_000


def test_xids_of_many_threads_are_all_different() -> None:
    def make(count: int) -> list[str]:
        return [new_xid() for _ in range(count)]

    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(make, [2000] * 8))

    assert len({text for batch in batches for text in batch}) == 16_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 19,
        "0" * 21,
        "0" * 19 + "1",
        "0" * 19 + "h",
        "A" * 19 + "0",
        "w" * 19 + "0",
        "0" * 19 + "0\n",
    ],
)
def test_what_is_no_canonical_xid_is_refused(text: str) -> None:
    assert not is_xid(text)


def test_uuid7_is_a_lower_case_uuid_of_version_7_with_the_time_in_front() -> None:
    before_ms = time.time_ns() // 1_000_000

    text = uuid7()

    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert before_ms <= (parsed.int >> 80) <= time.time_ns() // 1_000_000 + 1


def test_uuid7_grows_although_many_are_made_in_one_millisecond() -> None:
    made = [uuid7() for _ in range(50_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_uuid7_grows_although_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = uuid7()
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)

    later = [uuid7() for _ in range(1000)]

    assert [first, *later] == sorted([first, *later])
    assert len({first, *later}) == 1001


def test_a_snowflake_holds_time_worker_and_sequence() -> None:
    clock = FakeClock(wall_s=1_800_000_000.5)
    source = Snowflake(5, clock)

    first, second = source.next(), source.next()

    assert first >> 22 == 1_800_000_000_500 - SNOWFLAKE_EPOCH_MS
    assert first >> 12 & 1023 == 5
    assert (first & 4095, second & 4095) == (0, 1)


def test_the_sequence_starts_at_zero_each_millisecond() -> None:
    clock = FakeClock(wall_s=1_800_000_000.0)
    source = Snowflake(0, clock)
    source.next()
    source.next()
    clock.advance(0.002)

    assert source.next() & 4095 == 0


def test_snowflakes_grow_although_the_clock_goes_back() -> None:
    clock = FakeClock(wall_s=1_800_000_000.0)
    source = Snowflake(1, clock)
    before = source.next()
    clock.jump_wall(-3600)

    assert before < source.next() < source.next()


def test_more_than_4096_in_a_millisecond_borrow_from_the_next() -> None:
    source = Snowflake(1, FakeClock(wall_s=1_800_000_000.0))

    made = [source.next() for _ in range(10_000)]

    assert made == sorted(set(made))
    assert (made[-1] >> 22) - (made[0] >> 22) == 2
    assert {number >> 12 & 1023 for number in made} == {1}


def test_a_clock_before_the_epoch_still_gives_positive_numbers() -> None:
    assert Snowflake(0, FakeClock(wall_s=0.0)).next() >= 0


@pytest.mark.parametrize("worker_id", [-1, 1024])
def test_a_worker_id_out_of_range_is_refused(worker_id: int) -> None:
    with pytest.raises(ValueError, match=r"not in 0\.\.1023"):
        Snowflake(worker_id)
