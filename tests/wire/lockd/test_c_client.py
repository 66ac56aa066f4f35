"""Bodies as lockd's C client writes them: what headers and query say is said again, and what is not given is null."""

from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import MULTIPART, closed, dequeue, part
from tests.wire.lockd.test_leases import refusal


async def test_a_token_in_the_body_of_a_keepalive_or_release_has_no_effect(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    body = {
        "namespace": "default",
        "key": "orders",
        "lease_id": lease.lease_id,
        "ttl_seconds": 30,
        "fencing_token": 99,
        "txn_id": lease.txn_id,
    }

    kept = await wire.post("/v1/keepalive", body, {"X-Fencing-Token": str(lease.token)})
    released = await wire.release(lease, fencing_token=99)

    assert kept.status_code == 200, kept.text
    assert released.json() == {"released": True}
    assert "lease_id" not in (await wire.get("/v1/describe", key="orders")).json()


async def test_a_metadata_body_may_repeat_what_query_and_headers_say(wire: Wire) -> None:
    lease = await wire.acquire("orders")
    body = {
        "namespace": "other",
        "key": "other",
        "lease_id": lease.lease_id,
        "if_version": 7,
        "query_hidden": True,
    }

    answer = await wire.post("/v1/metadata", body, {**lease.headers, "X-If-Version": "0"}, key="orders")
    without_field = await wire.post("/v1/metadata", {"key": "orders"}, lease.headers, key="orders")

    assert answer.json() == {
        "namespace": "default",
        "key": "orders",
        "version": 1,
        "metadata": {"query_hidden": True},
    }
    assert refusal(without_field) == (400, "invalid_metadata")


async def test_null_stands_for_a_member_left_out(wire: Wire) -> None:
    asked = {"namespace": None, "key": None, "ttl_seconds": 0, "owner": "worker-1", "txn_id": None}
    meta = b'{"namespace":null,"queue":"orders","max_attempts":0,"payload_content_type":null}'

    acquired = await wire.post("/v1/acquire", asked)
    found = await wire.post("/v1/query", {"namespace": None, "selector": None, "fields": None})
    enqueued = await wire.post(
        "/v1/queue/enqueue", closed(part("meta", meta), part("payload", b"hi")), MULTIPART
    )
    delivered = await dequeue(wire, "orders", namespace=None, txn_id=None, start_after=None)
    deferred = await wire.post(
        "/v1/queue/nack", delivered.resolve(last_error=None, intent="defer", state_lease_id=None)
    )

    assert [answer.status_code for answer in (acquired, found, enqueued, deferred)] == [200] * 4
    assert delivered.message["payload_content_type"] == "application/octet-stream"
