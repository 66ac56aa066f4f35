"""kill -9 of a process with durable locks under load: what was told holds, for the rest of its time, and no token comes again."""

import asyncio
import json
import random
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.infra.program import free_ports
from tests.system.locks.node import LockNode, lock_node
from tests.wire.dflockd.conftest import Client

CLIENTS = 8
KEYS = 5
TTL_S = 300


class History:
    """What clients asked and were told, over all lives."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, float]] = {}
        """Token and the end of the lease at the latest, of what no client asked to release."""
        self.in_doubt: set[str] = set()
        self.tokens: dict[str, list[str]] = {}

    def granted(self, key: str, token: str) -> None:
        earlier = self.tokens.setdefault(key, [])
        assert token > max(earlier, default=""), "a token that is not greater than all before it"
        earlier.append(token)
        self.held[key] = token, time.time() + TTL_S


async def work(client: Client, history: History, number: int, stop: asyncio.Event) -> None:
    """Lock and unlock keys of its own until the process is gone; sometimes keep one."""
    chance = random.Random(number)
    try:
        while not stop.is_set():
            key = f"job-{number}-{chance.randrange(KEYS)}"
            if key in history.held:
                token, _ = history.held.pop(key)
                history.in_doubt.add(key)
                assert await client.ask("r", key, token) == "ok"
                history.in_doubt.discard(key)
                continue
            history.in_doubt.add(key)
            answer = (await client.ask("l", key, f"0 {TTL_S}")).split(" ")
            if answer == [""]:
                return
            assert answer[0] == "ok", answer
            history.granted(key, answer[1])
            history.in_doubt.discard(key)
    except (OSError, AssertionError):
        if not stop.is_set():
            raise


async def check(node: LockNode, history: History) -> None:
    client = await node.connect()
    shown = json.loads((await client.ask("stats")).removeprefix("ok "))
    left_s = {lock["key"]: lock["lease_expires_in_s"] for lock in shown["locks"]}
    for key, (token, ends_s) in history.held.items():
        assert left_s[key] <= ends_s - time.time() + 0.5, "a lease that began anew"
        assert left_s[key] > ends_s - time.time() - 60, "a lease that lost its time"
        assert await client.ask("l", key, "0") == "timeout", "held twice"
        assert await client.ask("n", key, f"{token} {TTL_S}") == f"ok {TTL_S}"
        history.held[key] = token, time.time() + TTL_S
    for key in sorted(history.in_doubt):
        answer = (await client.ask("l", key, f"0 {TTL_S}")).split(" ")
        if answer[0] == "ok":
            history.granted(key, answer[1])
        else:
            assert answer == ["timeout"]  # Granted, or not yet released, and no client was told.
    history.in_doubt.clear()
    client.close()


@pytest.mark.parametrize("lives", [2, pytest.param(12, marks=pytest.mark.long)])
async def test_what_was_told_of_durable_locks_outlives_kill_9(
    processes: ForkServerContext, tmp_path: Path, lives: int
) -> None:
    ports = free_ports(2)
    flags = {
        "store": f"disk://{tmp_path / 'store'}",
        "listen": f"127.0.0.1:{ports[0]}",
        "tcp_listen": f"127.0.0.1:{ports[1]}",
        "tcp_durable": True,
        "tcp_auto_release": False,  # The connections of a test that ends early must not end what it looks at.
    }
    history = History()
    chance = random.Random(9)
    async with lock_node(processes, **flags) as node:
        for life in range(lives):
            stop = asyncio.Event()
            clients = [await node.connect() for _ in range(CLIENTS)]
            working = [
                asyncio.create_task(work(client, history, number + CLIENTS * life, stop))
                for number, client in enumerate(clients)
            ]
            await asyncio.sleep(chance.uniform(0.3, 0.8))
            stop.set()
            node.kill()
            await asyncio.gather(*working)
            for client in clients:
                client.close()
            node.start()
            await node.ready()
            await check(node, history)
    assert sum(len(tokens) for tokens in history.tokens.values()) > CLIENTS
