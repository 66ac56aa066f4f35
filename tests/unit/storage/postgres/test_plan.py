"""How a group of batches is cut into waves."""

from holdfast.storage.port import Batch, RangeExpectation
from holdfast.storage.postgres.plan import GROUP_BYTES_MAX, WAVES_MAX, GroupPlan


def wave_ends(*batches: Batch) -> object:
    plan = GroupPlan()
    for batch in batches:
        assert plan.add(batch)
    return plan.arguments()[0]


def test_batches_on_different_keys_share_a_wave() -> None:
    assert wave_ends(Batch(puts={b"a": b""}), Batch(puts={b"b": b""}), Batch(deletes={b"c"})) == [3]


def test_a_batch_that_expects_what_an_earlier_one_writes_starts_a_wave() -> None:
    assert wave_ends(Batch(puts={b"a": b""}), Batch(expects={b"a": 1})) == [1, 2]


def test_a_batch_that_writes_what_an_earlier_one_writes_starts_a_wave() -> None:
    assert wave_ends(Batch(puts={b"a": b""}), Batch(puts={b"a": b""}), Batch(deletes={b"a"})) == [1, 2, 3]


def test_a_batch_that_expects_a_range_written_before_starts_a_wave() -> None:
    inside = Batch(expect_ranges=[RangeExpectation(b"a", b"c", 1)])
    behind = Batch(expect_ranges=[RangeExpectation(b"c", None, 1)])

    assert wave_ends(Batch(puts={b"b": b""}), behind, inside) == [2, 3]


def test_a_batch_that_writes_what_an_earlier_one_only_expects_shares_its_wave() -> None:
    assert wave_ends(Batch(expects={b"a": 1}), Batch(puts={b"a": b""})) == [2]


def test_a_group_is_full_at_its_bytes_and_at_its_waves() -> None:
    large = Batch(puts={b"a": bytes(GROUP_BYTES_MAX)})
    by_bytes, by_waves = GroupPlan(), GroupPlan()

    assert by_bytes.add(large), "one batch always fits"
    assert not by_bytes.add(Batch(puts={b"b": b"1"}))
    for _ in range(WAVES_MAX):
        assert by_waves.add(Batch(puts={b"a": b""}))
    assert not by_waves.add(Batch(puts={b"a": b""}))
