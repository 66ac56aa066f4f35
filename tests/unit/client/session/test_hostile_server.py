"""Whatever a server answers, a call ends in a result or in a ClientError."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.errors import ClientError
from holdfast.client.options import ClientOptions
from holdfast.client.session.acquisition import Acquisition
from holdfast.client.session.handshake import Handshake
from holdfast.client.session.hold import Hold
from holdfast.client.session.lease import Lease
from holdfast.client.wire.call import Answer
from holdfast.client.wire.flow import Flow
from tests.infra.player import Player

NAMES = st.sampled_from(
    [
        "error", "detail", "retry_after_seconds", "current_version", "current_etag", "namespace", "key", "lease_id",
        "txn_id", "fencing_token", "expires_at_unix", "version", "state_etag", "released", "removed", "new_version",
        "new_state_etag", "bytes", "metadata", "attachment", "attachments", "deleted", "noop", "owner",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.binary(max_size=50) | st.dictionaries(NAMES, VALUES, max_size=12).map(
    lambda it: json.dumps(it).encode()
)
HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "date", "etag", "x-key-version", "x-fencing-token", "shutdown-imminent"]),
    st.text(max_size=30) | st.integers().map(str) | st.just("Mon, 16 Nov 2026 00:00:00 GMT"),
)
STATUSES = st.sampled_from([200, 201, 204, 206, 301, 400, 403, 404, 409, 413, 429, 500, 502, 503])

OPERATIONS: list[Callable[[Hold], Flow[Any]]] = [
    lambda hold: hold.keepalive(),
    lambda hold: hold.release(rollback=False, retries=2),
    lambda hold: hold.get(),
    lambda hold: hold.update(b"{}", {}),
    lambda hold: hold.mutate(["/n++"], {}),
    lambda hold: hold.remove({}),
    lambda hold: hold.metadata(query_hidden=True, if_version=None, cas=True),
    lambda hold: hold.put_attachment("a", b"", content_type=None, max_bytes=None, prevent_overwrite=False),
    lambda hold: hold.delete_attachment(name="a", id=""),
    lambda hold: hold.delete_attachments(),
    lambda hold: hold.reading().list_attachments(),
    lambda hold: hold.reading().describe(),
]


@given(st.lists(st.tuples(STATUSES, HEADERS, BODIES), min_size=1, max_size=5))
def test_no_answer_breaks_a_session(answers: list[tuple[int, dict[str, str], bytes]]) -> None:
    for operation in OPERATIONS:
        player = Player([Answer(*answers[number % len(answers)]) for number in range(30)])
        hold = Hold(player.channel, ClientOptions(), Lease("k", "l", "t", 1), ttl_s=5.0, deadline_s=10_000.0)

        try:
            player.play(operation(hold))
        except ClientError as error:
            assert str(error)


@given(st.lists(st.tuples(STATUSES, HEADERS, BODIES), min_size=1, max_size=5))
def test_no_answer_breaks_an_acquire(answers: list[tuple[int, dict[str, str], bytes]]) -> None:
    player = Player([Answer(*answers[number % len(answers)]) for number in range(300)], seconds_per_call=1.0)
    wanted = Acquisition(namespace="n", key="k", owner="o", correlation_id="c", block_s=5.0)

    try:
        player.play(Handshake(player.channel, ClientOptions(), wanted, failure_retries=2).run())
    except ClientError as error:
        assert str(error)
