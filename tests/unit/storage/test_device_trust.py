"""When the event loop may wait for a device."""

from holdfast.storage.disk.fsync_policy import QUICK_S, FsyncPolicy

SLOW_S = 2 * QUICK_S


def _trust(syncs_min: int | None, *took_s: float) -> bool:
    trust = FsyncPolicy(syncs_min)
    for seconds in took_s:
        trust.took(seconds)
    return trust.is_earned


def test_trust_is_earned_by_quick_syncs_in_a_row() -> None:
    assert not _trust(3, 0.0, 0.0)
    assert _trust(3, 0.0, 0.0, 0.0)


def test_one_slow_sync_loses_it_and_it_has_to_be_earned_again() -> None:
    assert not _trust(2, 0.0, 0.0, SLOW_S)
    assert not _trust(2, 0.0, 0.0, SLOW_S, 0.0)
    assert _trust(2, 0.0, 0.0, SLOW_S, 0.0, 0.0)


def test_a_device_is_never_trusted_where_that_is_turned_off() -> None:
    assert not _trust(None, *[0.0] * 1000)
