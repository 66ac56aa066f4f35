"""Signals over HTTP: sent by a call, heard as server-sent events by the subscribers of that moment."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast.leases.protocol.locks import signals as signal_routes
from holdfast.leases.protocol.locks.signals import PUSHES_MAX, Inbox
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.lock_wire import POLL_S, delivered, listening
from tests.wire.lockd.test_leases import refusal


async def test_a_signal_reaches_every_listener_whose_pattern_matches(wire: Wire) -> None:
    async with AsyncExitStack() as stack:
        patterns = ["orders.new", "orders.*", "%3E", "orders.old"]
        heard = [await stack.enter_async_context(listening(wire, f"pattern={one}")) for one in patterns]

        count = await delivered(wire, "orders.new", "  4711 ")

        assert count == 3
        for one in heard[:3]:
            assert await one.next() == {"channel": "orders.new", "payload": "  4711 "}
        assert await delivered(wire, "orders.old", "x") == 3
        assert (await heard[3].next())["channel"] == "orders.old"


async def test_of_a_group_one_hears_each_signal(wire: Wire) -> None:
    async with listening(wire, "pattern=work&group=g") as one, listening(wire, "pattern=work&group=g") as two:
        counts = [await delivered(wire, "work", str(number)) for number in range(4)]

        assert counts == [1, 1, 1, 1]
        assert [(await one.next())["payload"] for _ in range(2)] == ["0", "2"]
        assert [(await two.next())["payload"] for _ in range(2)] == ["1", "3"]


async def test_a_listener_that_hangs_up_is_gone(wire: Wire) -> None:
    async with listening(wire, "pattern=gone"):
        assert await delivered(wire, "gone", "x") == 1

    while await delivered(wire, "gone", "x"):  # noqa: ASYNC110  # Seen over HTTP only.
        await asyncio.sleep(POLL_S)


async def test_channels_are_listed_with_their_listeners(wire: Wire) -> None:
    async with (
        listening(wire, "pattern=seen.%3E"),
        listening(wire, "pattern=seen.%3E"),
        listening(wire, "pattern=seen.a&group=g"),
    ):
        answer = (await wire.get("/v1/signals/channels", prefix="seen.")).json()
        first = (await wire.get("/v1/signals/channels", prefix="seen.", limit="1")).json()

        wild, group = answer["channels"]
        assert (wild["pattern"], wild["listeners"], len(wild["listening"])) == ("seen.>", 2, 2)
        assert (group["pattern"], group["group"], group["listeners"]) == ("seen.a", "g", 1)
        assert all(one["age_seconds"] >= 0 and one["address"] for one in wild["listening"])
        assert (answer["total"], first["total"], first["channels"][0]["pattern"]) == (2, 2, "seen.>")
    assert refusal(await wire.get("/v1/signals/channels", limit="x")) == (400, "invalid_page")


async def test_a_thousand_signals_come_in_their_order(wire: Wire) -> None:
    async with listening(wire, "pattern=many") as heard:
        for number in range(200):
            assert await delivered(wire, "many", str(number)) == 1
            assert (await heard.next())["payload"] == str(number)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"channel": "a.*", "payload": "x"},
        {"channel": "a.>", "payload": "x"},
        {"channel": "a b", "payload": "x"},
        {"channel": "c" * 257, "payload": "x"},
        {"channel": "a"},
        {"channel": "a", "payload": ""},
        {"channel": "a", "payload": "x" * 257},
        {"channel": "a", "payload": "x\ny"},
        {"channel": "a", "payload": "x\r"},
        {"channel": "a", "payload_base64": "%"},
    ],
)
async def test_what_a_signal_cannot_be_is_refused(wire: Wire, body: dict[str, str]) -> None:
    assert refusal(await wire.post("/v1/signals", body)) == (400, "invalid_signal")


@pytest.mark.parametrize(
    "query", [{}, {"pattern": "a.>.b"}, {"pattern": "a b"}, {"pattern": "a", "group": "g h"}]
)
async def test_what_a_pattern_cannot_be_is_refused(wire: Wire, query: dict[str, Any]) -> None:
    assert refusal(await wire.get("/v1/signals", **query)) == (400, "invalid_signal")


def test_a_reader_that_is_too_slow_loses_signals_and_the_sender_is_told() -> None:
    inbox = Inbox()

    taken = [inbox.push(b"c", b"%d" % number) for number in range(PUSHES_MAX + 2)]

    assert taken == [True] * PUSHES_MAX + [False] * 2
    assert inbox.take().count(b"event: signal") == PUSHES_MAX
    assert inbox.push(b"c", b"next")


async def test_a_silent_stream_shows_that_it_lives(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    assert signal_routes.HEARTBEAT_S == 15
    monkeypatch.setattr(signal_routes, "HEARTBEAT_S", 0.01)

    async with listening(wire, "pattern=silent") as heard:
        assert [await heard.block() for _ in range(2)] == [": alive", ": alive"]
