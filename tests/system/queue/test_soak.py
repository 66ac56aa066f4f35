"""A queue that is killed every few seconds under load: nothing is lost, nothing comes back after its ack."""

import asyncio
import itertools
import random
import signal
from pathlib import Path

import pytest

from tests.infra.program import free_port
from tests.system.cli import serving
from tests.system.leases.wire import WireClient
from tests.system.queue.soak import (
    QUEUE,
    VISIBILITY_S,
    Consumer,
    End,
    Ledger,
    Producer,
    Taken,
    dead_ids,
    is_poison,
)

PRODUCERS, CONSUMERS = 4, 8
KILL_EACH_S = 5.0
SEED = 20261116
SLACK_S = 0.5  # Between the moment a delivery was claimed and the moment its consumer noted it.


async def run_plane(home: Path, port: int, is_over: asyncio.Event) -> int:
    """A plane that is killed and started again until all is done; returns how often."""
    kills = 0
    while not is_over.is_set():
        with serving(home, "--listen", f"127.0.0.1:{port}", "--qrf-disabled") as server:
            try:
                async with asyncio.timeout(KILL_EACH_S):
                    await is_over.wait()
            except TimeoutError:
                kills += 1
            await asyncio.to_thread(server.stop, signal.SIGKILL)
    return kills


async def wait_until_drained(port: int, ledger: Ledger) -> None:
    """Every message that was told to be stored is acked, perhaps acked, or dead, and nothing is left in the queue."""
    while True:
        resolved = ledger.acked.keys() | ledger.perhaps_acked | await dead_ids(port)
        if ledger.enqueued.keys() <= resolved and await is_idle(port):
            return
        await asyncio.sleep(0.5)


async def is_idle(port: int) -> bool:
    try:
        wire = await WireClient.connect(port)
    except OSError:
        return False
    try:
        stats = (await wire.post("/v1/queue/stats", {"queue": QUEUE})).members()
    except (OSError, EOFError):
        return False
    finally:
        wire.close()
    return not stats["available"] and not stats.get("in_flight", 0)


def check(ledger: Ledger, dead: set[str]) -> None:
    # Nothing is lost, and nothing was delivered that was not sent.
    assert ledger.enqueued.keys() <= ledger.acked.keys() | ledger.perhaps_acked | dead
    for message_id, payload in ledger.payloads.items():
        known = ledger.enqueued.get(message_id)
        assert known == payload or (known is None and payload in ledger.unknown_payloads)
    # The dead are exactly those that every consumer refused.
    assert {message_id for message_id in dead if not is_poison(ledger.payloads[message_id])} == set()
    assert {message_id for message_id, payload in ledger.enqueued.items() if is_poison(payload)} <= dead
    assert not dead & ledger.acked.keys()
    for message_id, taken in ledger.delivered.items():
        tokens = [one.token for one in taken]
        assert len(set(tokens)) == len(tokens), "two consumers had the same delivery"
        # Nothing is delivered after an ack that was told.
        assert max(tokens) <= ledger.acked.get(message_id, max(tokens))
        for before, after in itertools.pairwise(sorted(taken)):
            check_repeated(before, after)


def check_repeated(before: Taken, after: Taken) -> None:
    """Every further delivery has its reason: the one before was given back, or its time was over."""
    held_s = {
        End.HUNG_UP: after.taken_at_s - before.taken_at_s,
        End.REFUSED: before.ended_at_s - before.taken_at_s,
    }
    assert before.end is not End.ACKED
    assert held_s.get(before.end, VISIBILITY_S) >= VISIBILITY_S - SLACK_S


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [600, pytest.param(100_000, marks=pytest.mark.long)])
async def test_nothing_is_lost_and_nothing_comes_back_after_its_ack(tmp_path: Path, count: int) -> None:
    port = free_port()
    rng = random.Random(SEED)
    ledger = Ledger()
    is_over, is_drained = asyncio.Event(), asyncio.Event()
    plane = asyncio.create_task(run_plane(tmp_path, port, is_over))

    producers = [
        Producer(port, ledger, random.Random(rng.random())).run(f"p{name}", count // PRODUCERS)
        for name in range(PRODUCERS)
    ]
    consumers = [
        asyncio.create_task(Consumer(port, ledger, random.Random(rng.random())).run(is_drained))
        for _ in range(CONSUMERS)
    ]
    await asyncio.gather(*producers)
    await wait_until_drained(port, ledger)
    is_drained.set()
    await asyncio.gather(*consumers)
    dead = await dead_ids(port)
    is_over.set()
    kills = await plane

    assert kills > 0
    assert len(ledger.enqueued) == count
    check(ledger, dead)
