"""Clients over sockets that vanish at every step, beside the model: the living are served in exact order, the dead get nothing."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from enum import Enum
from functools import partial
from pathlib import Path

import pytest

from holdfast.leases.layer.locks.records import Lock, Session
from holdfast.leases.layer.locks.table import LockTable
from tests.infra.lock_model import LockModel
from tests.wire.dflockd.conftest import ANSWER_S_MAX, Client, LockPlane, lock_plane, tls_plane

LIMITS = {"lock": 1, "pool": 2, "wide": 5}
CLIENTS = 12
TTL_S = 300
NOW_S = 0.0
"""No lease ends while this runs."""
OpenPlane = Callable[..., AbstractAsyncContextManager[LockPlane]]


class End(Enum):
    """How a client vanishes."""

    FIN = "fin"
    RST = "rst"
    HALF_LINE = "half a line, then the end"
    HALF_REQUEST = "half a request, then a reset"
    TOO_LONG = "a line too long: the server ends it"
    PIPELINED = "a request behind the one that blocks, then the end"


class Swarm:
    """Clients of one plane, and the model of what they are told."""

    def __init__(self, plane: LockPlane, chance: random.Random) -> None:
        self.plane = plane
        self.chance = chance
        self.model = LockModel(1024, 1000)
        self.clients: dict[int, Client] = {}
        self.blocked: set[int] = set()
        self.tokens: dict[str, str] = {}
        self.held: list[tuple[str, int]] = []
        self._begun = 0

    async def begin(self) -> None:
        self.steady = await self.plane.connect()
        for _ in range(CLIENTS):
            await self.join()

    async def join(self) -> None:
        self._begun += 1
        self.clients[self._begun] = await self.plane.connect()

    async def step(self) -> None:
        number = self.chance.choice(sorted(self.clients))
        if self.chance.random() < 0.2:
            await self.vanish(number)
        elif number not in self.blocked:
            await self.ask(number)
        elif self.held:
            await self.release()
        await self.check_answers()

    async def ask(self, number: int) -> None:
        name = self.chance.choice(sorted(LIMITS))
        limit, waits = LIMITS[name], self.chance.random() < 0.8
        timeout = "300" if waits else "0"
        kind = self.chance.choice(["lock", "lock", "enqueue", "wait", "release"])
        expected: str | None
        if kind == "lock":
            request = f"sl\n{name}\n{timeout} {limit} {TTL_S}\n"
            expected = self.model.lock(number, name, limit, TTL_S, waits, NOW_S)
        elif kind == "enqueue":
            request = f"se\n{name}\n{limit} {TTL_S}\n"
            expected = self.model.enqueue(number, name, limit, TTL_S, NOW_S)
        elif kind == "wait":
            request = f"sw\n{name}\n{timeout}\n"
            expected = self.model.wait(number, name, waits, NOW_S)
        elif self.held:
            await self.release()
            return
        else:
            return
        await self.clients[number].send(request.encode())
        if expected is None:
            self.blocked.add(number)
        else:
            await self.check(number, name, expected)

    async def release(self) -> None:
        """By any connection: the token is the only proof. Some are old."""
        name, grant = self.held.pop(self.chance.randrange(len(self.held)))
        told = await self.steady.ask("sr", name, self.tokens[f"#{grant}"])
        assert told == self.model.release(name, grant, NOW_S)

    async def vanish(self, number: int) -> None:
        client = self.clients.pop(number)
        end = self.chance.choice(list(End))
        if end is End.HALF_LINE:
            await client.send(b"l\nlo")
        elif end is End.HALF_REQUEST:
            await client.send(b"l\nlock\n")
        elif end is End.TOO_LONG and number not in self.blocked:
            await client.send(b"l\n" + b"x" * 300 + b"\n")
        elif end is End.PIPELINED:
            # Which of them are served before the end is seen is a matter of luck: these take nothing.
            await client.send(b"l\nlock\nx\nping\n_\n_\n")
        if end in (End.RST, End.HALF_REQUEST):
            client.reset()
        else:
            client.close()
        self.blocked.discard(number)
        self.model.vanish(number, NOW_S)
        await self.join()

    async def check_answers(self) -> None:
        """The server has seen everything, and who was waiting is told what the model says."""
        expected: dict[int, list[tuple[str, str]]] = defaultdict(list)
        for name, number, answer in self.model.answers:
            expected[number].append((name, answer))
        self.model.answers.clear()
        for number, answers in expected.items():
            self.blocked.discard(number)
            for name, answer in answers:
                await self.check(number, name, answer)
        places = sum(len(key.queue) for key in self.model.keys.values())
        slots = sum(len(key.slots) for key in self.model.keys.values())
        async with asyncio.timeout(ANSWER_S_MAX):
            while await self.plane.counts(self.steady) != (CLIENTS + 1, places, slots):
                continue

    async def check(self, number: int, name: str, expected: str) -> None:
        told = (await self.clients[number].line()).decode().removesuffix("\n")
        status, *rest = expected.split()
        if not rest:
            assert told == expected
            return
        grant, ttl_s = rest
        told_status, token, told_ttl_s = told.split()
        assert (told_status, told_ttl_s) == (status, ttl_s)
        assert self.tokens.setdefault(grant, token) == token
        assert len(set(self.tokens.values())) == len(self.tokens)
        self.held.append((name, int(grant[1:])))

    async def end(self) -> None:
        """No client was told anything that was not expected."""
        for number, client in self.clients.items():
            if number not in self.blocked:
                assert await client.ask("ping") == "ok"
        for client in self.clients.values():
            client.close()
        async with asyncio.timeout(ANSWER_S_MAX):
            while await self.plane.counts(self.steady) != (1, 0, 0):
                continue
        self.steady.close()


async def swarm(seed: int, steps: int, opened: OpenPlane = lock_plane) -> None:
    async with opened(shutdown_timeout_s=0.1) as plane:
        clients = Swarm(plane, random.Random(seed))
        await clients.begin()
        for step in range(steps):
            try:
                await clients.step()
            except (AssertionError, ValueError, TimeoutError) as error:
                raise AssertionError(f"seed {seed}, step {step}") from error
        await clients.end()


@pytest.mark.parametrize("seed", range(4))
async def test_the_living_are_served_as_the_model_says(seed: int) -> None:
    await swarm(seed, 1500)


async def test_the_living_are_served_over_tls_as_the_model_says(tmp_path: Path) -> None:
    await swarm(15, 400, partial(tls_plane, tmp_path))


@pytest.mark.parametrize("seed", range(2))
async def test_the_living_are_served_by_durable_locks_as_the_model_says(tmp_path: Path, seed: int) -> None:
    await swarm(seed, 500, partial(lock_plane, store=f"disk://{tmp_path}/store", tcp_durable=True))


@pytest.mark.parametrize("rule", ["the first waits longest", "the dead keep what they hold"])
async def test_a_rule_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    grant_waiters = LockTable._grant_waiters

    def last_first(table: LockTable, lock: Lock, now_s: float) -> None:
        for waiter in list(lock.waiters)[:1]:
            lock.waiters.move_to_end(waiter)
        grant_waiters(table, lock, now_s)

    def keeping(table: LockTable, session: Session, now_s: float, *, keeps_leases: bool = False) -> None:
        end_session(table, session, now_s, keeps_leases=True)

    end_session = LockTable.end_session
    if rule == "the first waits longest":
        monkeypatch.setattr(LockTable, "_grant_waiters", last_first)
    else:
        monkeypatch.setattr(LockTable, "end_session", keeping)
    monkeypatch.setattr("tests.wire.dflockd.test_vanishing.ANSWER_S_MAX", 0.5)

    with pytest.raises(AssertionError):
        await swarm(0, 1500)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 116))
async def test_many_more_of_the_living_are_served_as_the_model_says(seed: int) -> None:
    await swarm(seed, 20_000)


async def queue_with_vanishing_waiters(waiters: int, seed: int) -> None:
    """They vanish before and between the grants, in every way; the others are served exactly in their order."""
    chance = random.Random(seed)
    async with lock_plane() as plane, AsyncExitStack() as stack, plane.clients(2) as (holder, steady):
        token = await holder.lock("job")
        waiting: list[Client] = []
        for number in range(waiters):
            client = await plane.connect()
            stack.callback(client.close)
            await client.send(b"l\njob\n120\n" if number % 3 else b"e\njob\n\n")
            if not number % 3:
                assert await client.line() == b"queued\n"
                await client.send(b"w\njob\n120\n")
            waiting.append(client)
            async with asyncio.timeout(ANSWER_S_MAX):
                while (await plane.counts(steady))[1] != len(waiting):
                    continue
        assert await holder.ask("r", "job", token) == "ok"
        served = 0
        while waiting:
            holder, *waiting = waiting
            served += 1
            status, token, _ = (await holder.line()).decode().split()
            assert status == "ok"
            gone = chance.sample(waiting, min(len(waiting), chance.choice([0, 0, 1, 3])))
            for client in gone:
                client.reset() if chance.random() < 0.5 else client.close()
            waiting = [client for client in waiting if client not in gone]
            async with asyncio.timeout(ANSWER_S_MAX):
                while (await plane.counts(steady))[1] != len(waiting):
                    continue
            if chance.random() < 0.5:
                holder.reset()
            else:
                assert await holder.ask("r", "job", token) == "ok"
        async with asyncio.timeout(ANSWER_S_MAX):
            while (await plane.counts(steady))[1:] != (0, 0):
                continue
        assert served > waiters // 4


async def test_waiters_that_vanish_between_grants_leave_the_order_as_it_is() -> None:
    await queue_with_vanishing_waiters(500, 15)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
async def test_many_queues_of_waiters_that_vanish_between_grants(seed: int) -> None:
    await queue_with_vanishing_waiters(1000, seed)


async def test_a_thousand_listeners_get_all_signals_in_order_and_slow_ones_lose_their_own() -> None:
    signals = 200
    async with lock_plane() as plane, AsyncExitStack() as stack:
        sender, *listeners = await stack.enter_async_context(plane.clients(1001))
        patterns = ["news.today", "news.>", "*.today", ">"]
        for number, client in enumerate(listeners):
            assert await client.ask("listen", patterns[number % len(patterns)]) == "ok"
        slow = [await stack.enter_async_context(plane.deaf_client()) for _ in range(3)]
        for client in slow:
            assert await client.ask("listen", "news.today") == "ok"
            client.stop_reading()

        counts = [
            int((await sender.ask("signal", "news.today", f"{number:03}" + "x" * 240)).removeprefix("ok "))
            for number in range(signals)
        ]

        lines = [b"sig news.today %03d%b\n" % (number, b"x" * 240) for number in range(signals)]
        for client in listeners:
            assert [await client.line() for _ in lines] == lines
        assert counts[0] == 1003
        assert counts[-1] == 1000, "those that do not read have no room any more"
        taken = 0
        for client in slow:
            client.go_on_reading()
            await client.send(b"ping\n_\n_\n")
            got: list[bytes] = []
            while (line := await client.line()) != b"ok\n":
                got.append(line)
            assert got == lines[: len(got)]
            taken += len(got)
        assert taken == sum(counts) - 1000 * signals
