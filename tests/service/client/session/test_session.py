"""Sessions of both twins against a fake plane: blocks, reads, writes, attachments, losses, a server that stops."""

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

from holdfast.client import (
    AsyncClient,
    CasMismatch,
    Client,
    ClientClosed,
    ClientOptions,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NotFound,
    TransportFailed,
    TxnConflict,
    UnexpectedAnswer,
)
from holdfast.client.aio import attachments as aio_attachments
from holdfast.client.aio import session as aio_session
from holdfast.client.sync import attachments as sync_attachments
from holdfast.client.sync import session as sync_session
from tests.infra.fake_plane import FakePlane, Reply, reply

WAIT_S = 10.0


def public_members(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("sync_kind", "async_kind"),
    [
        (Client, AsyncClient),
        (sync_session.Session, aio_session.Session),
        (sync_attachments.Attachments, aio_attachments.Attachments),
    ],
)
def test_the_twins_have_the_same_names_and_parameters(sync_kind: type, async_kind: type) -> None:
    assert public_members(sync_kind) == public_members(async_kind)


def test_a_block_commits_what_it_staged(plane: FakePlane, url: str) -> None:
    with Client(url) as client, client.acquire("orders", owner="me") as session:
        before = session.load({"n": 0})
        session.save({"n": before["n"] + 1})
        mine, public = session.load(), client.load("orders")

    assert (mine, public, plane.keys["orders"].document) == ({"n": 1}, None, b'{"n":1}')
    assert plane.keys["orders"].holder is None


async def test_an_asynchronous_block_commits_what_it_staged(plane: FakePlane, url: str) -> None:
    async with AsyncClient(url) as client:
        async with client.acquire("orders") as session:
            await session.save([1])
            mine, public = await session.load(), await client.load("orders")
        committed = await client.get("orders")

    assert (mine, public) == ([1], None)
    assert committed is not None
    assert (committed.json(), committed.version) == ([1], 1)


def test_a_block_that_raises_rolls_back(plane: FakePlane, url: str) -> None:
    with Client(url) as client, pytest.raises(KeyError), client.acquire("orders") as session:
        session.save({"half": True})
        raise KeyError("orders")

    assert plane.at("/v1/release")[0].members()["rollback"] is True
    assert plane.keys["orders"].document is None


async def test_an_asynchronous_block_that_is_cancelled_rolls_back(plane: FakePlane, url: str) -> None:
    async with AsyncClient(url) as client:
        is_inside = asyncio.Event()

        async def work() -> None:
            async with client.acquire("orders") as session:
                await session.save({"half": True})
                is_inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.wait_for(is_inside.wait(), WAIT_S)
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_S)

    assert task.cancelled()
    assert plane.at("/v1/release")[0].members()["rollback"] is True


def test_a_release_that_fails_in_a_failing_block_is_noted_on_its_error(plane: FakePlane, url: str) -> None:
    plane.then("/v1/release", reply(500, error="internal_error"), reply(500, error="internal_error"))

    with Client(url) as client, pytest.raises(KeyError) as raised, client.acquire("orders"):
        raise KeyError("orders")

    assert "not released" in raised.value.__notes__[0]


def test_every_call_of_a_session_carries_its_proof_and_its_correlation_id(plane: FakePlane, url: str) -> None:
    with Client(url) as client, client.acquire("orders") as session:
        session.get()
        session.save({})
        session.attachments.list()

    lease = session.lease
    for path in ("/v1/get", "/v1/update", "/v1/attachments"):
        headers = plane.at(path)[0].headers
        assert headers["x-lease-id"] == lease.lease_id
        assert headers["x-txn-id"] == lease.txn_id
        assert headers["x-fencing-token"] == "1"
        assert headers["x-correlation-id"] == lease.correlation_id


def test_attachments_go_up_and_down_in_every_form(plane: FakePlane, url: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"from a file")
    with Client(url) as client, client.acquire("files") as session:
        files = session.attachments
        files.put("ключ.txt", b"bytes", content_type="text/plain; charset=é")
        files.put("file", path)
        files.put("stream", iter([b"a", b"b"]), max_bytes=9, prevent_overwrite=True)
        names = [item.name for item in files.list()]
        read = files.read("ключ.txt")
        info = files.save(tmp_path / "out", "file")
        with files.get("stream") as stream:
            pieces = b"".join(stream)
        deleted = (files.delete("file"), files.delete("file"), files.delete_all(), files.delete_all())
        with pytest.raises(NotFound):
            files.read("gone")
        with pytest.raises(InvalidArgument):
            files.delete()

    assert names == ["file", "stream", "ключ.txt"]
    assert (read, pieces, (tmp_path / "out").read_bytes()) == (b"bytes", b"ab", b"from a file")
    assert info.name == "file"
    assert deleted == (True, False, 2, 0)
    queries = [request.query for request in plane.at("/v1/attachments") if request.method == "POST"]
    assert queries[0]["content_type"] == "text/plain; charset=é"
    assert (queries[2]["max_bytes"], queries[2]["prevent_overwrite"]) == ("9", "1")


async def test_asynchronous_attachments_go_up_and_down(url: str, tmp_path: Path) -> None:
    async with AsyncClient(url) as client, client.acquire("files") as session:
        files = session.attachments
        await files.put("a", iter([b"x"] * 10))
        await files.save(tmp_path / "out", "a")
        async with files.get("a") as stream:
            pieces = [chunk async for chunk in stream]
        listed = [item.name for item in await client.attachments("files").list()]
        deleted = (await files.delete("a"), await files.delete_all())

    assert (b"".join(pieces), (tmp_path / "out").read_bytes()) == (b"x" * 10, b"x" * 10)
    assert (listed, deleted) == (["a"], (True, 0))


def test_a_held_key_raises_with_how_long(plane: FakePlane, url: str) -> None:
    with Client(url) as client, client.acquire("orders"), pytest.raises(LeaseHeld) as refused:
        client.acquire("orders", block_s=0)

    assert refused.value.retry_after_s == 30


def test_a_lease_is_renewed_at_half_time(plane: FakePlane, url: str) -> None:
    with Client(url) as client, client.acquire("orders", ttl_s=0.4) as session:
        requests = plane.wait_for("/v1/keepalive", 2)
        is_lost = session.lost.is_set()

    assert requests[0].members()["lease_id"] == session.lease.lease_id
    assert not is_lost


def test_a_lost_lease_sets_its_event_and_fails_the_block(plane: FakePlane, url: str) -> None:
    with Client(url) as client, pytest.raises(LeaseLost), client.acquire("orders", ttl_s=0.2) as session:
        plane.keys["orders"].holder = None
        assert session.lost.wait(WAIT_S)
        with pytest.raises(LeaseLost):
            session.save({})

    assert session.lost_because is not None
    assert plane.at("/v1/update") == []


async def test_a_lease_that_no_keepalive_reaches_is_lost_when_its_time_is_over(
    plane: FakePlane, url: str
) -> None:
    plane.then("/v1/keepalive", *(Reply(0) for _ in range(1000)))

    async with AsyncClient(url) as client:
        session = await client.acquire("orders", ttl_s=1)
        await asyncio.wait_for(session.lost.wait(), WAIT_S)
        with pytest.raises(LeaseLost) as lost:
            await session.release()

    assert lost.value.code == "lease_expired"


def test_a_keepalive_that_fails_now_and_then_loses_nothing(plane: FakePlane, url: str) -> None:
    plane.then("/v1/keepalive", reply(500, error="internal_error"), reply(429, error="throttled"))

    with Client(url) as client, client.acquire("orders", ttl_s=1) as session:
        plane.wait_for("/v1/keepalive", 3)
        is_lost = session.lost.is_set()

    assert not is_lost


def test_a_server_that_stops_gets_idle_leases_back(plane: FakePlane, url: str) -> None:
    with Client(url) as client:
        idle = client.acquire("idle")
        plane.is_draining = True
        client.describe("idle")
        assert idle.lost.wait(WAIT_S)
        with pytest.raises(LeaseLost, match="about to stop"):
            idle.release()

    assert plane.keys["idle"].holder is None


async def test_a_server_that_stops_waits_for_the_block_that_has_staged(plane: FakePlane, url: str) -> None:
    async with AsyncClient(url) as client:
        async with client.acquire("busy") as session:
            await session.save({"n": 1})
            plane.is_draining = True
            await session.save({"n": 2})
            was_lost = session.lost.is_set()
            released_inside = plane.at("/v1/release")

    assert not was_lost
    assert released_inside == []
    assert plane.keys["busy"].document == b'{"n":2}'


def test_a_client_that_is_not_drain_aware_keeps_its_leases(plane: FakePlane, url: str) -> None:
    with Client(url, options=ClientOptions(drain_aware=False)) as client, client.acquire("idle") as session:
        plane.is_draining = True
        client.describe("idle")
        released_inside = plane.at("/v1/release")

    assert released_inside == []
    assert not session.lost.is_set()


def test_a_lease_that_its_transaction_ended_is_not_lost(plane: FakePlane, url: str) -> None:
    with Client(url) as client, client.acquire("a", ttl_s=0.4) as outer:
        outer.save(1)
        with client.acquire("b", txn_id=outer.lease.txn_id):
            pass
        plane.keys["a"].holder = None  # As the release of the other key leaves it.
        with pytest.raises(LeaseLost):
            outer.keepalive()

    assert not outer.lost.is_set()


def test_a_lease_whose_transaction_was_not_decided_can_be_lost(plane: FakePlane, url: str) -> None:
    with Client(url) as client:
        outer = client.acquire("a")
        inner = client.acquire("b", txn_id=outer.lease.txn_id)
        plane.then("/v1/release", reply(409, error="txn_pending"))
        with pytest.raises(TxnConflict):
            inner.release()
        plane.keys["a"].holder = None
        with pytest.raises(LeaseLost):
            outer.keepalive()

    assert outer.lost.is_set()


def test_closing_rolls_back_what_was_not_released(plane: FakePlane, url: str) -> None:
    client = Client(url)
    session = client.acquire("orders")
    session.save({"half": True})

    client.close()
    client.close()

    assert plane.keys["orders"].holder is None
    assert plane.keys["orders"].document is None
    with pytest.raises(ClientClosed):
        client.acquire("orders")


def test_a_detached_lease_outlives_its_client_and_can_be_attached(plane: FakePlane, url: str) -> None:
    with Client(url) as client:
        lease = client.acquire("orders").detach()
    with Client(url) as other:
        session = other.attach(lease)
        session.save({"n": 1})
        session.release()
        session.release()

    assert plane.keys["orders"].document == b'{"n":1}'
    assert len(plane.at("/v1/release")) == 1


def test_a_stale_write_is_refused_with_the_current_version(plane: FakePlane, url: str) -> None:
    with Client(url) as client, client.acquire("orders") as session:
        session.save({})
        with pytest.raises(CasMismatch) as refused:
            session.update(b"{}", if_version=7)

    assert refused.value.current_version == 1


def test_a_document_is_streamed_from_and_to_files(plane: FakePlane, url: str, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(b'"' + b"x" * 300_000 + b'"')
    with Client(url) as client:
        with client.acquire("big") as session:
            session.update(path)
            with session.stream() as document:
                size_bytes = document.save_to(tmp_path / "copy.json")
        with client.stream("big") as public, client.stream("absent") as nothing:
            content = b"".join(public)
            is_there = (public.exists, nothing.exists, list(nothing))

    assert size_bytes == 300_002
    assert content == path.read_bytes() == (tmp_path / "copy.json").read_bytes()
    assert is_there == (True, False, [])


def test_an_answer_above_the_limit_is_not_read_into_memory(plane: FakePlane, url: str) -> None:
    plane.then("/v1/get", Reply(200, b"x" * 2000))

    with Client(url, options=ClientOptions(document_bytes_max=1000)) as client:
        with pytest.raises(UnexpectedAnswer, match="stream"):
            client.get("big")


@pytest.mark.parametrize(
    "wrong",
    [b"", b"[]", b"{}", b'{"lease_id":5}', b'{"key":"k","lease_id":"l","txn_id":"t","fencing_token":0}'],
)
def test_a_grant_that_is_none_is_an_error(plane: FakePlane, url: str, wrong: bytes) -> None:
    plane.then("/v1/acquire", Reply(200, wrong))

    with Client(url) as client, pytest.raises(UnexpectedAnswer):
        client.acquire("orders")


def test_what_would_break_the_request_is_refused_here(url: str) -> None:
    with Client(url) as client, client.acquire("orders") as session:
        with pytest.raises(InvalidArgument, match="control character"):
            session.update(b"{}", if_etag="a\r\nX-Fencing-Token: 9")
        with pytest.raises(InvalidArgument, match="no JSON"):
            session.save(float("nan"))


def test_a_server_that_is_not_there_is_named(plane: FakePlane) -> None:
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(TransportFailed, match=r"127\.0\.0\.1:1") as failed,
    ):
        client.get("orders")

    assert not failed.value.is_sent


def test_many_threads_share_a_client(plane: FakePlane, url: str) -> None:
    with Client(url) as client:

        def work(number: int) -> None:
            with client.acquire(f"key-{number}") as session:
                session.save(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)

    assert [plane.keys[f"key-{number}"].document for number in range(8)] == [b"%d" % n for n in range(8)]
