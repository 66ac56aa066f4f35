"""The one renewer of a client, both twins, against a fake plane: batches, the way without them, losses, failures."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from holdfast.client import AsyncClient, Client, ClientError, LeaseLost
from holdfast.client.sync.session import Session
from tests.infra.fake_plane import FakePlane, Reply, reply

BATCH = "/v1/keepalive/batch"
SINGLE = "/v1/keepalive"
WAIT_S = 10.0


def renewed_keys(plane: FakePlane) -> set[str]:
    return {item["key"] for request in plane.at(BATCH) for item in request.members()["renewals"]}


def hold(client: Client, count: int, ttl_s: float) -> list[Session]:
    return [client.acquire(f"key-{number}", ttl_s=ttl_s) for number in range(count)]


def test_leases_that_are_due_together_go_as_one_batch(plane: FakePlane, url: str) -> None:
    plane.takes_batches = True

    with Client(url) as client:
        sessions = hold(client, 10, 2.0)
        request = plane.wait_for(BATCH)[0]
        lost = [session for session in sessions if session.lost.is_set()]

    first = request.members()["renewals"][0]
    lease = sessions[0].lease
    assert lost == []
    assert first == {
        "namespace": "default",
        "key": "key-0",
        "lease_id": lease.lease_id,
        "ttl_seconds": 2,
        "txn_id": lease.txn_id,
        "fencing_token": 1,
    }
    assert request.headers["x-correlation-id"]


async def test_asynchronous_leases_that_are_due_together_go_as_one_batch(plane: FakePlane, url: str) -> None:
    plane.takes_batches = True

    async with AsyncClient(url) as client:
        sessions = [await client.acquire(f"key-{number}", ttl_s=2) for number in range(10)]
        names = [task.get_name() for task in asyncio.all_tasks() if "keepalive" in task.get_name()]
        await asyncio.to_thread(plane.wait_for, BATCH, 2)
        lost = [session for session in sessions if session.lost.is_set()]

    assert lost == []
    assert names == ["holdfast.keepalive"]
    assert len(renewed_keys(plane)) >= 2


def test_a_server_without_batches_is_asked_once_and_then_lease_by_lease(plane: FakePlane, url: str) -> None:
    with Client(url) as client:
        sessions = hold(client, 8, 2.0)
        plane.wait_for(SINGLE, 30)
        lost = [session for session in sessions if session.lost.is_set()]

    assert lost == []
    assert len(plane.at(BATCH)) == 1
    assert {request.members()["key"] for request in plane.at(SINGLE)} == {f"key-{n}" for n in range(8)}


async def test_an_asynchronous_client_does_the_same(plane: FakePlane, url: str) -> None:
    async with AsyncClient(url) as client:
        sessions = [await client.acquire(f"key-{number}", ttl_s=2) for number in range(8)]
        await asyncio.to_thread(plane.wait_for, SINGLE, 30)
        lost = [session for session in sessions if session.lost.is_set()]

    assert lost == []
    assert len(plane.at(BATCH)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        reply(405, error="method_not_allowed"),
        reply(400, error="invalid_body"),
        reply(413, error="document_too_large"),
        reply(403, error="namespace_forbidden"),
        Reply(200, b"<html>"),
        Reply(200, b"{}"),
        reply(200, results=[{"expires_at_unix": 1}]),
    ],
)
def test_a_batch_that_is_not_answered_as_one_loses_nothing(plane: FakePlane, url: str, wrong: Reply) -> None:
    plane.takes_batches = True
    plane.then(BATCH, wrong)

    with Client(url) as client:
        sessions = hold(client, 4, 2.0)
        plane.wait_for(SINGLE, 8)
        lost = [session for session in sessions if session.lost.is_set()]

    assert lost == []
    assert len(plane.at(BATCH)) == 1


@pytest.mark.parametrize(
    "failure", [Reply(0), reply(500, error="internal_error"), reply(429, error="throttled"), Reply(503)]
)
def test_a_batch_that_fails_is_sent_again(plane: FakePlane, url: str, failure: Reply) -> None:
    plane.takes_batches = True
    plane.then(BATCH, failure, failure)

    with Client(url) as client:
        sessions = hold(client, 4, 2.0)
        plane.wait_for(BATCH, 4)
        lost = [session for session in sessions if session.lost.is_set()]

    assert lost == []


def test_one_lease_that_a_batch_refuses_is_lost_alone(plane: FakePlane, url: str) -> None:
    plane.takes_batches = True

    with Client(url) as client:
        sessions = hold(client, 5, 2.0)
        plane.keys["key-3"].holder = None
        assert sessions[3].lost.wait(WAIT_S)
        plane.wait_for(BATCH, 3)
        lost = [session.key for session in sessions if session.lost.is_set()]
        with pytest.raises(LeaseLost) as raised:
            sessions[3].release()

    assert lost == ["key-3"]
    assert (raised.value.code, raised.value.status) == ("lease_required", 403)


async def test_leases_that_no_batch_reaches_are_lost_when_their_time_is_over(
    plane: FakePlane, url: str
) -> None:
    plane.takes_batches = True
    plane.then(BATCH, *(Reply(0) for _ in range(1000)))
    plane.then(SINGLE, *(Reply(0) for _ in range(1000)))

    async with AsyncClient(url) as client:
        sessions = [await client.acquire(f"key-{number}", ttl_s=1) for number in range(3)]
        await asyncio.wait_for(asyncio.gather(*(session.lost.wait() for session in sessions)), WAIT_S)
        codes = {session.lost_because.code for session in sessions if session.lost_because is not None}

    assert codes == {"lease_expired"}


def test_many_leases_have_one_thread(plane: FakePlane, url: str) -> None:
    plane.takes_batches = True

    with Client(url) as client:
        hold(client, 50, 30.0)
        names = [thread.name for thread in threading.enumerate() if "keepalive" in thread.name]

    assert names == ["holdfast.keepalive"]


def test_a_released_lease_is_renewed_no_more(plane: FakePlane, url: str) -> None:
    plane.takes_batches = True

    with Client(url) as client:
        sessions = hold(client, 6, 2.0)
        sessions[2].release()
        before = len(plane.at(BATCH))
        plane.wait_for(BATCH, before + 3)
        later = [item["key"] for seen in plane.at(BATCH)[before + 1 :] for item in seen.members()["renewals"]]

    assert later
    assert "key-2" not in later


def test_a_lease_that_its_holder_shortened_is_renewed_in_time(plane: FakePlane, url: str) -> None:
    with Client(url) as client, client.acquire("orders", ttl_s=60) as session:
        session.keepalive(1)
        plane.wait_for(SINGLE, 4)
        is_lost = session.lost.is_set()

    assert not is_lost


def test_a_hung_call_does_not_keep_others_from_being_told_that_they_are_lost(
    plane: FakePlane, url: str
) -> None:
    plane.takes_batches = True
    answer: Any = plane.answer

    def slow(request: Any) -> Reply:
        result: Reply = answer(request)
        if request.path.startswith(SINGLE):
            time.sleep(4.0)
        return result

    plane.answer = slow  # type: ignore[method-assign]  # A server that makes up its mind.
    with Client(url) as client:
        sessions = hold(client, 3, 1.0)
        began_s = time.monotonic()
        told = [session.lost.wait(WAIT_S) for session in sessions]
        is_told_before_the_answer = time.monotonic() - began_s < 4.0

    assert told == [True] * 3
    assert is_told_before_the_answer


def test_a_lease_without_a_thread_is_given_back_and_the_next_one_is_kept_alive(
    plane: FakePlane, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def no_more(thread: threading.Thread) -> None:
        if thread.name == "holdfast.keepalive":
            monkeypatch.setattr(threading.Thread, "start", start)
            raise RuntimeError("can't start new thread")
        start(thread)

    with Client(url) as client:
        monkeypatch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(ClientError, match="no thread to keep a lease alive"):
            client.acquire("first", ttl_s=1)
        session = client.acquire("second", ttl_s=1)
        plane.wait_for(SINGLE, 3)

    assert not session.lost.is_set()
    assert plane.at("/v1/release")[0].members()["rollback"] is True
    assert {request.members()["key"] for request in plane.at(SINGLE)} == {"second"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_keeps_its_own_leases_alive(plane: FakePlane, url: str) -> None:
    script = f"""
import os, sys, time
from holdfast.client import Client

client = Client({url!r})
held = client.acquire("parent", ttl_s=1)
with client._renewer._changed:  # As a thread that holds it at that moment would leave it.
    pid = os.fork()
if pid:
    sys.exit(os.waitpid(pid, 0)[1])
session = client.acquire("child", ttl_s=1)
time.sleep(2.5)
os._exit(3 if session.lost.is_set() else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)

    assert done.returncode == 0
    assert len([one for one in plane.at(SINGLE) if one.members()["key"] == "child"]) >= 3
