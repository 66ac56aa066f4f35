"""When trouble with writes is told, and when it is the same trouble still."""

import json

import pytest

from holdfast.common.logging import configure_logging
from holdfast.storage.errors import StorageError, StoreFull, StoreReadOnly
from holdfast.storage.hosting.trouble import SAME_EPISODE_S, WriteTrouble

FULL = StoreFull("no room; free some")
READ_ONLY = StoreReadOnly("mounted read-only; mount it again")


class FakeMonotonic:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> FakeMonotonic:
    return FakeMonotonic()


@pytest.fixture
def trouble(time: FakeMonotonic) -> WriteTrouble:
    configure_logging("info")
    return WriteTrouble("disk:///store", time)


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [line["msg"].removeprefix("storage.writes.") for line in lines]


def begin_and_end(trouble: WriteTrouble, error: StorageError = FULL) -> None:
    trouble.began(error)
    trouble.began(error)
    trouble.end()


def test_it_is_told_when_it_begins_and_when_it_is_over(
    trouble: WriteTrouble, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_and_end(trouble)

    assert told(capsys) == ["failing", "resumed"]


def test_what_comes_and_goes_is_told_once(
    trouble: WriteTrouble, time: FakeMonotonic, capsys: pytest.CaptureFixture[str]
) -> None:
    """As uploads that do not fit: each makes room again when it is refused."""
    for _ in range(20):
        begin_and_end(trouble)
        time.now_s += SAME_EPISODE_S / 2

    assert told(capsys) == ["failing", "resumed"]


def test_after_a_quiet_time_it_is_told_again(
    trouble: WriteTrouble, time: FakeMonotonic, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_and_end(trouble)
    time.now_s += SAME_EPISODE_S

    begin_and_end(trouble)

    assert told(capsys) == ["failing", "resumed"] * 2


def test_another_reason_is_told_at_once(trouble: WriteTrouble, capsys: pytest.CaptureFixture[str]) -> None:
    begin_and_end(trouble)

    begin_and_end(trouble, READ_ONLY)

    assert told(capsys) == ["failing", "resumed"] * 2
