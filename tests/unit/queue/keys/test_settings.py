"""What a put on the key of a queue says of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue.layer.keys.settings import apply_settings, is_settings, shown
from holdfast.queue.layer.records_pb2 import KeyQueue
from holdfast.state.layer.kv.errors import KvError


def queue() -> KeyQueue:
    return KeyQueue(reliability="majority", max_in_flight=16)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"{}", ("majority", 16, 0)),
        (b' \n{"reliability":"few"}', ("few", 16, 0)),
        (b'{"reliability":"none","max_in_flight":1,"ack_timeout_s":30}', ("none", 1, 30)),
        (b'{"max_in_flight":10000}', ("majority", 10_000, 0)),
        (b'{"ack_timeout_s":604800}', ("majority", 16, 604_800)),
    ],
)
def test_settings_are_taken_over_and_told(value: bytes, told: tuple[str, int, int]) -> None:
    changed = queue()

    apply_settings(changed, value)

    assert json.loads(shown(changed)) == dict(
        zip(("reliability", "max_in_flight", "ack_timeout_s"), told, strict=True)
    )


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"{]",
        b'{"reliability":"most"}',
        b'{"reliability":1}',
        b'{"reliability":[]}',
        b'{"reliability":null}',
        b'{"max_in_flight":0}',
        b'{"max_in_flight":10001}',
        b'{"max_in_flight":1.5}',
        b'{"max_in_flight":"1"}',
        b'{"max_in_flight":true}',
        b'{"max_in_flight":1e400}',
        b'{"max_in_flight":%b}' % (b"9" * 1000),
        b'{"ack_timeout_s":-1}',
        b'{"ack_timeout_s":604801}',
        b'{"ack_timeout_s":NaN}',
        b'{"maxInFlight":1}',
        b'{"\xff":1}',
        b'{"":1}',
        b"{" * 4000,
        b'{"reliability":"few"} {}',
        b'{"reliability":"few"%b}' % (b" " * 5000),
    ],
)
def test_wrong_settings_are_refused_as_a_whole(value: bytes) -> None:
    changed = queue()

    with pytest.raises(KvError) as refused:
        apply_settings(changed, value)

    assert refused.value.status == 400
    assert len(refused.value.detail) < 400


@pytest.mark.parametrize("value", [b"", b"7", b"[]", b'"{}"', b"\xff", b"null", b"node"])
def test_any_other_value_is_no_settings(value: bytes) -> None:
    assert not is_settings(value)


@given(st.binary(max_size=40).map(lambda tail: b"{" + tail))
def test_whatever_looks_like_settings_is_taken_or_refused(value: bytes) -> None:
    changed = queue()
    try:
        apply_settings(changed, value)
    except KvError:
        return
    json.loads(shown(changed))
