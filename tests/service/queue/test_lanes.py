"""The endpoints of queues by the express lane and by plain ASGI: the same bytes; and what their metrics tell."""

import re
from collections.abc import AsyncIterator

import pytest

from holdfast.common.ids import new_xid
from tests.system.leases.wire import WireClient, plane

ID = {"X-Correlation-Id": "test-1"}
MULTIPART = {"Content-Type": "multipart/related; boundary=b", **ID}
MESSAGE = (
    b'--b\r\nContent-Disposition: form-data; name="meta"\r\n\r\n{"queue":"q"}\r\n'
    b'--b\r\nContent-Disposition: form-data; name="payload"\r\n\r\n%b\r\n--b--\r\n'
)
DEQUEUE = b'{"queue":"q","owner":"w","wait_seconds":-1}'
CONVERSATION: list[tuple[str, dict[str, str], bytes]] = [
    ("/v1/queue/enqueue", MULTIPART, MESSAGE % b"hello"),
    ("/v1/queue/enqueue", MULTIPART, MESSAGE % (b"x" * 100_000)),
    ("/v1/queue/enqueue", ID, MESSAGE % b"hello"),
    ("/v1/queue/enqueue", MULTIPART, MESSAGE[:-10]),
    ("/v1/queue/enqueueBatch", MULTIPART, MESSAGE % b"hello"),
    ("/v1/queue/peek", ID, b'{"queue":"q","limit":10}'),
    ("/v1/queue/stats", ID, b'{"queue":"q"}'),
    ("/v1/queue/dequeue", ID, DEQUEUE),
    ("/v1/queue/dequeue", ID, b"{"),
    ("/v1/queue/dequeue", ID, b""),
    ("/v1/queue/dequeueBatch?queue=other&owner=w&wait_seconds=-1", ID, b""),
    ("/v1/queue/ack", ID, b'{"queue":"q"}'),
    ("/v1/queue/nack", ID, b'{"queue":"q","message_id":"x","lease_id":"y","meta_etag":"z"}'),
    ("/v1/queue/policy", ID, b'{"queue":"q","max_attempts":3}'),
    ("/v1/queue/dlq/list", ID, b'{"queue":"q"}'),
    ("/v1/queue/dlq/purge", ID, b'{"queue":"q","message_ids":[]}'),
]
_OTHER_EACH_TIME = re.compile(
    rb"[0-9a-f]{60}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-v]{20}\b|\b1[78]\d{8}\b|date: [^\r]*"
)


async def answers(port: int) -> AsyncIterator[bytes]:
    for target, headers, body in CONVERSATION:
        wire = await WireClient.connect(port)
        answer = await wire.call("POST", target, headers, body)
        wire.close()
        head = "\r\n".join(f"{name}: {value}" for name, value in answer.headers.items())
        yield _OTHER_EACH_TIME.sub(b"?", f"{answer.status}\r\n{head}\r\n\r\n".encode() + answer.body)


async def test_both_lanes_answer_with_the_same_bytes() -> None:
    async with plane("mem://", is_express=True) as port:
        by_lane = [answer async for answer in answers(port)]
    async with plane("mem://", is_express=False) as port:
        by_asgi = [answer async for answer in answers(port)]

    assert by_lane == by_asgi
    assert [answer[:3] for answer in by_lane[:4]] == [b"200", b"200", b"400", b"400"]


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_metrics_count_calls_messages_and_bytes(is_express: bool) -> None:
    async with plane("mem://", is_express=is_express) as port:
        wire = await WireClient.connect(port)
        await wire.call("POST", "/v1/queue/enqueue", MULTIPART, MESSAGE % b"hello")
        await wire.call("POST", "/v1/queue/dequeue", ID, DEQUEUE)
        await wire.call("POST", "/v1/queue/dequeue", ID, DEQUEUE)
        lines = (await wire.call("GET", "/metrics")).body.decode().splitlines()
        wire.close()

    assert 'holdfast_queue_enqueue_total{namespace="default",result="ok"} 1' in lines
    assert 'holdfast_queue_dequeue_total{namespace="default",result="ok"} 1' in lines
    assert 'holdfast_queue_dequeue_total{namespace="default",result="waiting"} 1' in lines
    assert "holdfast_queue_enqueue_messages_total 1" in lines
    assert "holdfast_queue_dequeue_bytes_total 5" in lines
    assert "holdfast_queue_in_flight 1" in lines
    assert "holdfast_queue_waiters 0" in lines


async def test_what_a_transaction_sends_counts_when_it_is_stored_and_the_metric_says_so() -> None:
    async with plane("mem://", is_express=True) as port:
        wire = await WireClient.connect(port)
        txn_id = new_xid()
        sent = await wire.call(
            "POST", "/v1/queue/enqueue", {**MULTIPART, "X-Txn-ID": txn_id}, MESSAGE % b"hello"
        )
        decision = b'{"txn_id":"%b","state":"rollback"}' % txn_id.encode()
        decided = await wire.call("POST", "/v1/txn/decide", ID, decision)
        lines = (await wire.call("GET", "/metrics")).body.decode().splitlines()
        wire.close()

    assert (sent.status, decided.status) == (200, 200), decided.body
    assert "holdfast_queue_enqueue_messages_total 1" in lines
    (help_line,) = [
        line for line in lines if line.startswith("# HELP holdfast_queue_enqueue_messages_total ")
    ]
    assert help_line.endswith("Those staged in a transaction count at once, also if it is rolled back.")
