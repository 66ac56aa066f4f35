"""The conversations about queues that were recorded with the original, had again byte for byte with the plane."""

import json
from typing import Final

import pytest

from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import enqueue, exchange, raw, until_available
from tests.wire.lockd.recording import Conversation, Reply, live_reply, recorded_reply, recordings

RECORDED: Final = recordings()

# Messages that were put into queues between two recordings, by other connections.
ENQUEUED_BEFORE: Final = {
    "R21": [("flows", b"start")],
    "R29": [("txq", b"t")],
    "R32": [("txq", b"t")],
    "R33": [("stream", b"msg0"), ("stream", b"msg1")],
}
# What became due between two recordings.
DUE_BEFORE: Final = {"R11": "orders", "R16": "orders"}
# Where the contract asks for something else than what was recorded.
OTHERWISE: Final = {"R27": (200, None), "R39": (400, "invalid_body"), "R40": (400, "invalid_queue")}
# Of the state of a message only the content counts here; its endpoints have tests of their own.
STATE: Final = {"R22", "R23", "R24"}
# A stream that is cut off has its own below.
LEFT_OUT: Final = {"R34"}


async def test_recorded_conversations_go_the_same_way(wire: Wire) -> None:
    conversation = Conversation()
    for name, recording in RECORDED.items():
        if name in LEFT_OUT:
            continue
        for queue, payload in ENQUEUED_BEFORE.get(name, ()):
            await enqueue(wire, queue, payload)
        if name in DUE_BEFORE:
            await until_available(wire, DUE_BEFORE[name])

        live = live_reply(*await exchange(wire, conversation.request(recording.request)))

        try:
            check(conversation, name, recorded_reply(recording.answer), live)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}\n{live}") from error


def check(conversation: Conversation, name: str, recorded: Reply, live: Reply) -> None:
    if name in OTHERWISE:
        assert (live.status, live.code if live.status >= 400 else None) == OTHERWISE[name]
    elif name in STATE:
        assert live.status == recorded.status
        if name == "R24":
            assert live.body == recorded.body.strip("\n")
    else:
        conversation.compare(recorded, live)


@pytest.mark.parametrize("name", ["R1", "R3", "R19", "R20"])
async def test_answers_tell_their_length(wire: Wire, name: str) -> None:
    await enqueue(wire, "orders", b"a message that is there")

    head, body = await exchange(wire, Conversation().request(RECORDED[name].request))

    assert b"content-length: %d\r\n" % len(body) in head.lower()


async def test_a_stream_goes_on_with_the_message_that_comes_later(wire: Wire) -> None:
    recorded = recorded_reply(RECORDED["R34"].answer)
    async with raw(wire, Conversation().request(RECORDED["R34"].request)) as stream:
        await until_available(wire, "stream", is_available=False)
        await enqueue(wire, "stream", b"late")
        head = await stream.head()
        chunk = await stream.chunk()

    live = live_reply(head, chunk)
    # The original sends the delimiter only together with the next message; sent at once it is as valid.
    delimiter = "\n--" + live.headers["content-type"].partition("boundary=")[2]
    assert live.body.endswith(delimiter)
    assert "transfer-encoding: chunked" in head.decode().lower()
    whole = live._replace(body=live.body.removesuffix(delimiter))
    Conversation().compare(recorded._replace(body=recorded.body.removesuffix("\n")), whole)


async def test_an_enlisted_delivery_returns_when_its_transaction_is_rolled_back(wire: Wire) -> None:
    """As R28 to R31, decided by a nack, which is one way to decide."""
    await enqueue(wire, "txq", b"t")
    conversation = Conversation()
    for name in ("R28", "R29"):
        live = live_reply(*await exchange(wire, conversation.request(RECORDED[name].request)))
        conversation.compare(recorded_reply(RECORDED[name].answer), live)
    message = json.loads(live.body.split("\n\n")[1])["message"]

    nacked = await wire.post("/v1/queue/nack", message)
    again = live_reply(*await exchange(wire, conversation.request(RECORDED["R31"].request)))

    assert nacked.status_code == 200, nacked.text
    assert again.status == 200
    assert json.loads(again.body.split("\n\n")[1])["message"]["attempts"] == 2
