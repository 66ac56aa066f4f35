"""A real process is told to stop while it works: no answer is lost, and the drain keeps its promises."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.service.common.sample import Raw, read_answer, request, status_of

CLIENTS = 30
ROOT = Path(__file__).parents[3]


@dataclass(slots=True)
class Tally:
    sent: int = 0
    answered: int = 0


@contextmanager
def _program(leases: int) -> Iterator[tuple["subprocess.Popen[str]", Raw]]:
    command = [sys.executable, "-m", "tests.system.serve.stopped_program", str(leases)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            yield process, Raw("127.0.0.1", int(process.stdout.readline()))
        finally:
            process.kill()


async def _ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and log."""
    _, log = await asyncio.to_thread(process.communicate, None, 60)
    return process.returncode, log


async def _send_until_told_to_stop(raw: Raw, path: str, tally: Tally, warm: asyncio.Event) -> None:
    """Keep one connection busy until an answer says that it was the last."""
    reader, writer = await raw.connect()
    while True:
        tally.sent += 1
        writer.write(request("POST", path))
        answer = await read_answer(reader)
        assert status_of(answer) == 200
        tally.answered += 1
        if tally.answered > 20 * CLIENTS:
            warm.set()
        if b"connection: close" in answer:
            break
    writer.close()


async def test_sigterm_under_load_drops_no_answer() -> None:
    tally = Tally()
    warm = asyncio.Event()
    with _program(leases=0) as (process, raw):
        clients = [
            asyncio.ensure_future(_send_until_told_to_stop(raw, path, tally, warm))
            for path in ("/work", "/plain") * (CLIENTS // 2)
        ]
        await asyncio.wait_for(warm.wait(), 60)

        process.send_signal(signal.SIGTERM)

        await asyncio.wait_for(asyncio.gather(*clients), 60)
        code, log = await _ended(process)

    assert tally.sent == tally.answered
    assert code == 0
    assert "server.stopped" in log


async def test_a_drain_waits_for_leases_and_refuses_new_ones() -> None:
    with _program(leases=2) as (process, raw):
        before = await raw.ask(request("POST", "/acquire"))
        process.send_signal(signal.SIGTERM)
        while b"shutdown-imminent: true" not in (health := await raw.ask(request("GET", "/healthz"))):
            pass
        during = await raw.ask(request("POST", "/acquire"))
        first = await raw.ask(request("POST", "/release"))
        second = await raw.ask(request("POST", "/release"))
        code, log = await _ended(process)

    assert status_of(before) == 200
    assert status_of(health) == 200
    assert status_of(during) == 503
    assert b'"error":"shutdown_draining"' in during
    assert b"retry-after: " in during
    assert all(b"shutdown-imminent: true" in answer for answer in (during, first, second))
    assert code == 0
    assert "shutdown.drain.begin" in log
    assert '"remaining":0' in log.partition("shutdown.drain.complete")[2]


async def test_a_second_signal_ends_a_server_that_still_waits() -> None:
    with _program(leases=1) as (process, raw):
        _, writer = await raw.connect()
        writer.write(request("POST", "/stuck"))
        process.send_signal(signal.SIGTERM)
        while b"shutdown-imminent" not in await raw.ask(request("GET", "/healthz")):
            pass

        process.send_signal(signal.SIGINT)

        code, log = await _ended(process)
        writer.close()

    assert code == 0
    assert "shutdown.forced" in log
