"""What takes too long is told of while it still does, and counted when it is over."""

import asyncio
import io
import json
from collections.abc import Iterator

import pytest

from holdfast.common.logging import configure_logging
from holdfast.common.telemetry.metrics import Registry, Timing
from holdfast.txn.layer.watchdog import watched


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging(stream=stream)
    yield stream
    configure_logging()


async def test_a_block_that_takes_too_long_is_warned_of_before_it_ends(log: io.StringIO) -> None:
    registry = Registry()
    timing = Timing(registry, "holdfast.txn.decide", "Decisions.")
    has_warned = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, has_warned.set)

    with watched(timing, "decide", "txn-1", threshold_s=0.001):
        await has_warned.wait()
        line = json.loads(log.getvalue())

    assert (line["msg"], line["txn_id"], line["threshold_ms"]) == ("txn.decide.watchdog", "txn-1", 1)
    assert b'duration_seconds_count{result="ok"} 1' in registry.render()


async def test_a_block_that_ends_in_time_is_only_timed(log: io.StringIO) -> None:
    registry = Registry()

    with watched(Timing(registry, "holdfast.txn.decide", "Decisions."), "decide"):
        await asyncio.sleep(0)

    assert log.getvalue() == ""
    assert b'duration_seconds_count{result="ok"} 1' in registry.render()
