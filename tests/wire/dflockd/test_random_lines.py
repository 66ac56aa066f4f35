"""Lines that no client would send: each is answered by a known word or ends the connection, and nothing of it stays."""

import asyncio
import gc
import random
import re

import psutil
import pytest

from tests.wire.dflockd.conftest import ANSWER_S_MAX, LockPlane, lock_plane
from tests.wire.dflockd.recording import recordings

GATE_LINES = 20_000
LONG_LINES = 100_000
LINES_PER_CLIENT = 60
CLIENTS_AT_ONCE = 4
GROWN_BYTES_MAX = 4 << 20
COMMANDS = (
    *(b"l", b"r", b"n", b"e", b"w", b"sl", b"sr", b"sn", b"se", b"sw", b"auth", b"stats", b"ping"),
    *(b"listen", b"unlisten", b"signal", b"incr", b"decr", b"get", b"cset", b"kset", b"kget", b"kdel"),
    *(b"lpush", b"rpush", b"lpop", b"rpop", b"llen", b"lrange", b"L", b" l", b"", b"GET / HTTP/1.1"),
)
KEYS = (b"k", b"job", b"a.b", b"a.*", b">", b"a.>.b", b"*", b"", b"two words", b"x" * 256, b"\xff\xfe", b"_")
ARGUMENTS = (
    *(
        b"",
        b"0",
        b"1",
        b"-1",
        b"+1",
        b"007",
        b"0 2",
        b"0 2 9",
        b"1 1",
        b"1.5",
        b"1e3",
        b"9" * 40,
        b" 0 \t 5 ",
    ),
    *(b"deadbeef", b"deadbeef 5", b"0 -1", b"-5 99", b"x 1", b"x" * 256, b"\x00", b"\r\r", b"group", b" "),
)
ANSWER = re.compile(
    rb"ok|ok [0-9a-f]{32} \d+|acquired [0-9a-f]{32} \d+|ok -?\d+|ok \{.*\}|ok \[.*\]|queued|timeout|nil|error|error_auth"
    rb"|error_max_locks|error_max_waiters|error_limit_mismatch|error_not_enqueued|error_already_enqueued"
    rb"|error_lease_expired|error_max_keys|error_list_full|sig \S+ .+",
    re.DOTALL,
)
STORED = re.compile(rb"ok .+", re.DOTALL)
"""What `kget` or a pop tells may be any line."""


def recorded_lines() -> list[bytes]:
    sent = [step.data for found in recordings().values() for step in found.steps if step.kind == "send"]
    return b"".join(sent).split(b"\n")[:-1]


class Lines:
    """Whole requests, lines by chance, and recorded ones with something changed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._recorded = recorded_lines()

    def some(self, count: int) -> bytes:
        lines: list[bytes] = []
        while len(lines) < count:
            kind = self._chance.random()
            if kind < 0.5:
                lines += [self._chance.choice(words) for words in (COMMANDS, KEYS, ARGUMENTS)]
            elif kind < 0.7:
                at = self._chance.randrange(0, len(self._recorded) - 3, 3)
                lines += self._recorded[at : at + 3]
            elif kind < 0.75:
                lines.append(self._chance.randbytes(self._chance.randint(0, 300)).replace(b"\n", b""))
            else:
                lines.append(self._chance.choice(COMMANDS + KEYS + ARGUMENTS))
            if self._chance.random() < 0.2:
                lines[-1] = self._changed(lines[-1])
        return b"".join(line + b"\n" for line in lines[:count])

    def _changed(self, line: bytes) -> bytes:
        changed = bytearray(line)
        for _ in range(self._chance.randint(1, 3)):
            at = self._chance.randint(0, len(changed))
            how = self._chance.randrange(4)
            if how == 0:
                changed[at:at] = bytes([self._chance.choice(b" \t\r\x00*>.0k\xc3-+")])
            elif how == 1:
                del changed[at : at + 1]
            elif how == 2:
                changed[at : at + 1] = bytes([self._chance.choice(range(11, 256))])
            else:
                changed += changed[:at]
        return bytes(changed).replace(b"\n", b"")

    def cut(self, data: bytes) -> list[bytes]:
        """In pieces, of which some end within a line."""
        ends = sorted(self._chance.randrange(len(data)) for _ in range(self._chance.randint(0, 4)))
        return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


async def talk(plane: LockPlane, lines: Lines) -> int:
    """How many answers there were."""
    async with plane.clients(1) as (client,):
        data = lines.some(LINES_PER_CLIENT)
        try:
            for piece in lines.cut(data):
                await client.send(piece)
            client.end()
            told = await client.rest()
        except ConnectionError:
            return 0  # It was ended for a line that was too long, with more of them under way.
        *answers, rest = told.split(b"\n")
        assert rest == b"", "every answer is a whole line"
        own = [answer for answer in answers if not answer.startswith(b"sig ")]
        assert len(own) <= LINES_PER_CLIENT // 3 + 1  # One more for the line that ends it.
        for answer in answers:
            assert ANSWER.fullmatch(answer) or STORED.fullmatch(answer), answer
        return len(own)


async def flood(lines_total: int, seed: int) -> None:
    lines = Lines(seed)
    limits = {"tcp_keys_max": 100, "tcp_list_items_max": 20, "tcp_locks_max": 100, "tcp_read_timeout_s": 60}
    process = psutil.Process()
    before: int | None = None
    answers = 0
    async with lock_plane(**limits) as plane, plane.clients(1) as (steady,):
        batches = lines_total // LINES_PER_CLIENT // CLIENTS_AT_ONCE
        for batch in range(batches):
            async with asyncio.timeout(ANSWER_S_MAX), asyncio.TaskGroup() as tasks:
                talks = [tasks.create_task(talk(plane, lines)) for _ in range(CLIENTS_AT_ONCE)]
            answers += sum(task.result() for task in talks)
            if batch == batches // 3:
                gc.collect()
                before = process.memory_info().rss
        assert await steady.ask("ping") == "ok"
        async with asyncio.timeout(ANSWER_S_MAX):
            while await plane.counts(steady) != (1, 0, 0):
                continue
        assert (await steady.ask("stats")).endswith('"signal_channels":null}')
        assert answers > lines_total // 3 // 4, answers  # The others stood behind a request that waits.
        gc.collect()
        assert before is not None
        assert process.memory_info().rss - before < GROWN_BYTES_MAX


async def test_random_and_changed_lines_are_answered_or_end_the_connection(
    capfd: pytest.CaptureFixture[str],
) -> None:
    await flood(GATE_LINES, 6388)
    assert_quiet(capfd)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
async def test_a_hundred_thousand_lines_leave_nothing(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    await flood(LONG_LINES, seed)
    assert_quiet(capfd)


def assert_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing failed inside, and the log tells of no failure."""
    told = "".join(capfd.readouterr())
    assert "Traceback" not in told
    assert '"lvl":"error"' not in told
