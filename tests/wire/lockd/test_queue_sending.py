"""A message sent inside a transaction: on disk, at two nodes in turns and in five servers on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.ids import new_xid
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, url_of, with_identity
from tests.wire.lockd.conftest import SHARED, Lease, Wire
from tests.wire.lockd.queue_wire import MULTIPART, closed, dequeue, enqueue, message_body, part, take

ENQUEUES = ("/v1/queue/enqueue", "/v1/queue/enqueueBatch")
TOLD_S = 20
TTL_S = 4  # Of a transaction that holds nothing.


@pytest.fixture(params=["disk", *SHARED])
async def wire(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Wire]:
    if request.param != "disk":
        opened = SHARED[request.param]
        async with opened(request.getfixturevalue("postgres_url"), ttl_s_default=TTL_S) as wire:
            yield wire
        return
    app = with_identity(create_app(GatewaySettings.isolated(store=f"disk://{tmp_path}", ttl_s_default=TTL_S)))
    async with (
        running(app, LOOPBACK, options=ServeOptions(drain_grace_s=0)) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20) as client,
    ):
        yield Wire(client)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


async def decide(wire: Wire, txn_id: str, state: str) -> str:
    answer = await wire.post("/v1/txn/decide", {"txn_id": txn_id, "state": state})
    assert answer.status_code == 200, answer.text
    told: str = answer.json()["state"]
    return told


async def is_empty(wire: Wire, queue: str = "orders") -> bool:
    return refusal(await take(wire, queue)) == (409, "waiting")


async def inspected(wire: Wire, path: str) -> dict[str, Any]:
    answer = await wire.post(f"/v1/queue/{path}", {"queue": "orders"})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TOLD_S):
        while not await condition():  # noqa: ASYNC110 - a plane tells no client when it is done
            await asyncio.sleep(0.05)


async def with_document(wire: Wire) -> Lease:
    lease = await wire.acquire("account", txn_id=new_xid())
    assert (await wire.update(lease, b'{"n":1}')).status_code == 200
    return lease


async def test_every_way_to_name_the_transaction_stages_the_message(wire: Wire) -> None:
    lease = await wire.acquire("account", txn_id=new_xid())
    sent: list[str] = []
    for path in ENQUEUES:
        for payload in (b"small", b"x" * 200_000):
            plain = message_body(payload, queue="orders")
            named = message_body(payload, queue="orders", txn_id=lease.txn_id)
            for answer in (
                await wire.post(path, named, MULTIPART),
                await wire.post(path, plain, MULTIPART, txn_id=lease.txn_id),
                await wire.post(path, plain, {**MULTIPART, "X-Txn-ID": lease.txn_id}),
            ):
                assert answer.status_code == 200, answer.text
                told = answer.json()
                told = told.get("messages", [told])[0]
                assert told["txn_id"] == lease.txn_id
                sent.append(told["message_id"])
    assert await is_empty(wire)
    stats = await inspected(wire, "stats")
    assert (stats["pending_candidates"], stats["in_flight"], stats["available"]) == (0, 0, False)
    assert (await inspected(wire, "peek"))["messages"] == []

    assert (await wire.release(lease)).json() == {"released": True}

    assert {(await dequeue(wire, "orders")).message["message_id"] for _ in sent} == set(sent)
    assert await is_empty(wire)


async def test_the_first_name_of_the_transaction_counts(wire: Wire) -> None:
    in_meta, in_query, in_header = (new_xid() for _ in range(3))
    header = {**MULTIPART, "X-Txn-ID": in_header}
    named = message_body(b"", queue="orders", txn_id=in_meta)
    plain = message_body(b"", queue="orders")
    blank = message_body(b"", queue="orders", txn_id=" ")
    answers = [
        await wire.post(ENQUEUES[0], named, header, txn_id=in_query),
        await wire.post(ENQUEUES[0], plain, header, txn_id=in_query),
        await wire.post(ENQUEUES[0], plain, header),
        await wire.post(ENQUEUES[0], blank, header, txn_id=" "),
    ]

    assert [answer.json()["txn_id"] for answer in answers] == [in_meta, in_query, in_header, in_header]


async def test_release_publishes_message_and_document_together(wire: Wire) -> None:
    lease = await with_document(wire)
    sent = await enqueue(wire, "orders", b"parcel", txn_id=lease.txn_id)
    assert (await wire.read("account")).status_code == 204

    await wire.release(lease)

    taken = await dequeue(wire, "orders")
    assert (taken.message["message_id"], taken.payload) == (sent["message_id"], b"parcel")
    assert (await wire.read("account")).json() == {"n": 1}


async def test_rollback_drops_message_and_document_together(wire: Wire) -> None:
    lease = await with_document(wire)
    await enqueue(wire, "orders", b"parcel", txn_id=lease.txn_id)

    await wire.release(lease, rollback=True)

    assert await is_empty(wire)
    assert (await wire.read("account")).status_code == 204


async def test_the_ack_of_a_delivery_sends_what_follows_from_it(wire: Wire) -> None:
    await enqueue(wire, "orders", b"first")
    taken = await dequeue(wire, "orders", visibility_timeout_seconds=30)
    await enqueue(wire, "invoices", b"second", {"X-Txn-ID": taken.message["txn_id"]})
    assert await is_empty(wire, "invoices")

    assert (await wire.post("/v1/queue/ack", taken.resolve())).status_code == 200

    assert (await dequeue(wire, "invoices")).payload == b"second"
    assert await is_empty(wire)


async def test_a_decision_by_name_ends_it_and_nothing_is_sent_afterwards(wire: Wire) -> None:
    for state, count in (("commit", 1), ("rollback", 0)):
        txn_id = new_xid()
        await enqueue(wire, "orders", txn_id=txn_id)
        assert await decide(wire, txn_id, state) == state

        late = await wire.post(
            "/v1/queue/enqueue", message_body(b"late", queue="orders", txn_id=txn_id), MULTIPART
        )

        assert refusal(late) == (409, "txn_conflict")
        assert state in late.json()["detail"]
        for _ in range(count):
            await dequeue(wire, "orders")
        assert await is_empty(wire)


async def test_an_id_that_the_plane_minted_sends_nothing_after_its_lease_or_delivery_has_ended(
    wire: Wire,
) -> None:
    lease = await wire.acquire("account")
    assert (await wire.release(lease)).status_code == 200
    await enqueue(wire, "orders", b"first")
    taken = await dequeue(wire, "orders")
    assert (await wire.post("/v1/queue/ack", taken.resolve())).status_code == 200

    for txn_id in (lease.txn_id, taken.message["txn_id"]):
        late = await wire.post(
            "/v1/queue/enqueue", message_body(b"late", queue="orders", txn_id=txn_id), MULTIPART
        )

        assert refusal(late) == (409, "txn_conflict")
        assert "has ended" in late.json()["detail"]
    assert await is_empty(wire)


async def test_what_nobody_decides_on_ends_after_the_default_ttl(wire: Wire) -> None:
    txn_id = new_xid()
    await enqueue(wire, "orders", txn_id=txn_id)

    async def is_over() -> bool:
        answer = await wire.post("/v1/txn/replay", {"txn_id": txn_id})
        return bool(answer.status_code == 200 and answer.json()["state"] == "rollback")

    await until(is_over)

    assert await is_empty(wire)
    assert await decide(wire, txn_id, "commit") == "rollback"
    assert await is_empty(wire)


async def test_a_consumer_that_waits_is_woken_by_the_commit(wire: Wire) -> None:
    lease = await wire.acquire("account", txn_id=new_xid())
    sent = await enqueue(wire, "orders", txn_id=lease.txn_id)
    waiting = asyncio.create_task(dequeue(wire, "orders", wait_seconds=TOLD_S))

    async def is_waiting() -> bool:
        return bool((await inspected(wire, "stats"))["waiting_consumers"])

    await until(is_waiting)

    await wire.release(lease)

    taken = await asyncio.wait_for(waiting, TOLD_S)
    assert taken.message["message_id"] == sent["message_id"]


async def test_a_transaction_id_that_is_none_is_refused_and_nothing_is_stored(wire: Wire) -> None:
    plain, named = (
        message_body(b"", queue="orders", **more) for more in ({}, {"txn_id": "C5V9D0SL70B3M3Q8NDG0"})
    )
    mixed = closed(
        part("meta", b'{"queue":"orders","txn_id":"%b"}' % new_xid().encode(), "application/json"),
        part("payload", b""),
        part("meta", b'{"queue":"orders"}', "application/json"),
        part("payload", b""),
    )
    for path in ENQUEUES:
        for answer in (
            await wire.post(path, named, MULTIPART),
            await wire.post(path, plain, MULTIPART, txn_id="notanxid"),
            await wire.post(path, plain, {**MULTIPART, "X-Txn-ID": "notanxid"}),
        ):
            assert refusal(answer) == (400, "invalid_txn"), path
    assert refusal(await wire.post(ENQUEUES[1], mixed, MULTIPART)) == (400, "invalid_txn")
    number = await wire.post(ENQUEUES[0], message_body(b"", queue="orders", txn_id=7), MULTIPART)
    assert refusal(number) == (400, "invalid_body")
    assert await is_empty(wire)
