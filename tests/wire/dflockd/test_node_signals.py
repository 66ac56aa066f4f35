"""Signals to listeners at another node than the one that has the subscriptions: what is counted arrives, as on one node."""

import asyncio
import re

import httpx

from tests.wire.dflockd.conftest import ANSWER_S_MAX, LockPair, LockPlane, lock_pair
from tests.wire.dflockd.test_framing import _numbers

SIGNALS = 900


async def test_a_signal_goes_to_the_next_member_while_one_at_another_node_is_full(postgres_url: str) -> None:
    """The subscriptions are at one of the two nodes: each of them has the member that does not read, in turn."""
    async with lock_pair(postgres_url, shutdown_timeout_s=0.1) as pair:
        for near, far in (pair.planes, reversed(pair.planes)):
            await _signals_to_a_full_member(pair, near, far)


async def _signals_to_a_full_member(pair: LockPair, near: LockPlane, far: LockPlane) -> None:
    async with near.clients(3) as (sender, first, last), far.deaf_client() as deaf:
        while await sender.ask("signal", "jobs", "none") != "ok 0":
            continue
        for client in (first, deaf, last):
            assert await client.ask("listen", "jobs", "pool") == "ok"
        deaf.stop_reading()
        for number in range(SIGNALS):
            assert await sender.ask("signal", "jobs", f"{number:05}" + "x" * 200) == "ok 1"
        deaf.go_on_reading()

        shares = [await _numbers(client) for client in (first, deaf, last)]
        async with asyncio.timeout(ANSWER_S_MAX):
            while sum(map(len, shares)) < SIGNALS:
                for share, client in zip(shares, (first, deaf, last), strict=True):
                    share += await _numbers(client)

        assert sorted(number for share in shares for number in share) == list(range(SIGNALS))
        assert all(share == sorted(share) for share in shares)
        assert 0 < len(shares[1]) < SIGNALS // 3 < min(len(shares[0]), len(shares[2]))

        async with asyncio.timeout(ANSWER_S_MAX):
            while not await _numbers(deaf):  # It has room again, and its turn comes.
                assert await sender.ask("signal", "jobs", "00000") == "ok 1"


async def test_a_burst_of_signals_reaches_a_listener_at_another_node_that_reads(postgres_url: str) -> None:
    burst = 3000
    # Both nodes and the clients share a loop, which this keeps busy: no node may count as gone meanwhile.
    async with lock_pair(postgres_url, tcp_node_ttl_s=5) as pair, pair.clients(2) as (one, two):
        for sender, listener in ((one, two), (two, one)):
            assert await listener.ask("listen", "jobs") == "ok"
            await sender.send(b"".join(b"signal\njobs\n%05d\n" % number for number in range(burst)))
            assert [await sender.line() for _ in range(burst)] == [b"ok 1\n"] * burst
            async with asyncio.timeout(10):
                lines = [await listener.line() for _ in range(burst)]
            assert lines == [b"sig jobs %05d\n" % number for number in range(burst)]
            assert await listener.ask("unlisten", "jobs") == "ok"


async def test_channels_are_listed_over_all_nodes(postgres_url: str) -> None:
    """The same at each node: patterns and groups, how many listen, from where and since when; and the metric counts them."""
    async with lock_pair(postgres_url) as pair, pair.clients(4) as clients:
        for client, pattern, group in zip(
            clients, ["news.>", "news.>", "jobs", "jobs"], ["", "", "pool", ""], strict=True
        ):
            assert await client.ask("listen", pattern, group) == "ok"
        counted = 0.0
        for plane in pair.planes:
            async with httpx.AsyncClient(base_url=plane.url) as http:
                answer = (await http.get("/v1/signals/channels")).json()
                first = (await http.get("/v1/signals/channels?prefix=news&limit=1")).json()
                page = (await http.get("/metrics")).text
            found = re.search(r"^holdfast_signal_channels(?:{[^}]*})? (\S+)$", page, re.MULTILINE)
            assert found is not None
            counted += float(found[1])

            assert [(one["pattern"], one.get("group"), one["listeners"]) for one in answer["channels"]] == [
                ("jobs", None, 1),
                ("jobs", "pool", 1),
                ("news.>", None, 2),
            ]
            assert answer["total"] == 3
            assert [one["pattern"] for one in first["channels"]] == ["news.>"]
            listening = [one for channel in answer["channels"] for one in channel["listening"]]
            assert len(listening) == 4
            assert all(one["address"].startswith("127.0.0.1:") for one in listening)
            assert all(0 <= one["age_seconds"] < 60 for one in listening)
        assert counted == 2, "patterns, at the node that has the subscriptions"
        assert await clients[0].ask("unlisten", "news.>") == "ok"
        clients[1].close()
        async with httpx.AsyncClient(base_url=pair.planes[1].url) as http, asyncio.timeout(ANSWER_S_MAX):
            while (await http.get("/v1/signals/channels?prefix=news")).json()["channels"]:
                continue
