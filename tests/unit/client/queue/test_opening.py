"""Streams that are opened again and again, and the events of a watch."""

import pytest

from holdfast.client import QueueChange, QueueEmpty, RequestRefused, TransportFailed, UnexpectedAnswer
from holdfast.client.queue.events import ChangeReader
from holdfast.client.queue.opening import Opening
from holdfast.client.wire.call import Answer, Call
from tests.infra.player import Player, answer


def opening(*script: Answer | Exception, retries: int | None = None) -> tuple[Opening, Player]:
    player = Player(list(script))
    return Opening(player.channel, lambda: Call("POST", "/v1/queue/subscribe"), retries=retries), player


def test_the_first_attempt_is_made_at_once() -> None:
    stream, player = opening(answer(200))

    found = player.play(stream.attempt())

    assert found is not None
    assert (found.status, stream.delay_s()) == (200, 0.0)


def test_delays_grow_to_a_bound_and_start_again_after_a_success() -> None:
    failures = [TransportFailed("broken")] * 12
    stream, player = opening(*failures)

    delays_s: list[float] = []
    for _ in failures:
        assert player.play(stream.attempt()) is None
        delays_s.append(stream.delay_s())
    stream.succeeded()

    assert delays_s[0] <= 0.2
    assert delays_s[-1] > 4.8
    assert max(delays_s) <= 5.1
    assert stream.delay_s() == 0.0


def test_an_outage_is_told_once_and_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    stream, player = opening(*[TransportFailed("\x1b[31mbroken")] * 3)

    for _ in range(3):
        player.play(stream.attempt())

    assert caplog.messages == [r"no stream: '\x1b[31mbroken'; trying again"]


def test_a_server_may_ask_for_more_time() -> None:
    stream, player = opening(answer(503, {"retry-after": "9"}, error="shutdown_draining"))

    player.play(stream.attempt())

    assert stream.delay_s() == 9.0


def test_an_empty_queue_is_told_as_such() -> None:
    stream, player = opening(answer(409, error="waiting", detail="no messages available"))

    with pytest.raises(QueueEmpty):
        player.play(stream.attempt())


def test_what_will_not_pass_is_raised() -> None:
    stream, player = opening(answer(400, error="invalid_queue"))

    with pytest.raises(RequestRefused):
        player.play(stream.attempt())


def test_retries_are_counted_in_a_row() -> None:
    broken = TransportFailed("broken")
    stream, player = opening(broken, broken, broken, retries=1)

    player.play(stream.attempt())
    stream.succeeded()
    player.play(stream.attempt())

    with pytest.raises(TransportFailed):
        player.play(stream.attempt())


def test_a_stream_that_ends_without_content_is_not_asked_for_in_a_hurry() -> None:
    stream, _ = opening()

    stream.ended(is_empty=True)
    empty_s = stream.delay_s()
    stream.ended(is_empty=False)

    assert empty_s > 0
    assert stream.delay_s() == 0


EVENT = (
    b'id: 1\nevent: queue_watch\ndata: {"namespace":"default","queue":"q","available":true,'
    b'"head_message_id":"m","changed_at_unix":7,"correlation_id":"c"}\n\n'
)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("piece_bytes", [1, 5, 1000])
def test_changes_are_read_however_they_are_cut(piece_bytes: int, line_end: bytes) -> None:
    data = (b": keepalive\n\n" + EVENT + b"event: other\ndata: {}\n\n" + EVENT).replace(b"\n", line_end)
    reader = ChangeReader()

    found: list[QueueChange] = []
    for start in range(0, len(data), piece_bytes):
        found += reader.feed(data[start : start + piece_bytes])

    assert [(change.is_available, change.head_message_id) for change in found] == [(True, "m")] * 2


@pytest.mark.parametrize(
    "data", [b"event: queue_watch\ndata: {broken\n\n", b"event: queue_watch\ndata: []\n\n", b"x" * 2_000_000]
)
def test_events_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        ChangeReader().feed(data)
