"""What the tests that kill a plane share: processes that start fast, and a clock that can be moved on."""

import multiprocessing
from multiprocessing.context import ForkServerContext

import pytest

from holdfast.common.clock import SteadyClock
from tests.system import attachment_crasher, lease_crasher, queue_crasher, split_plane
from tests.system.lease_time import ShiftedClock


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Children of a process that has imported everything already: a life costs a tenth of a second."""
    context = multiprocessing.get_context("forkserver")
    mortals = (lease_crasher, attachment_crasher, queue_crasher, split_plane)
    context.set_forkserver_preload([module.__name__ for module in mortals])
    return context


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ShiftedClock:
    shifted = ShiftedClock()
    monkeypatch.setattr("holdfast.gateway.plane.SteadyClock", lambda: SteadyClock(shifted))
    return shifted
