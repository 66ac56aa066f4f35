"""kill -9 of the leader while it delivers a decision to another island: both islands follow it, whole."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest

from holdfast.common.ids import new_xid
from tests.system.cluster.processes import TcProcess, TcProcesses, tc_processes
from tests.wire.lockd.queue_wire import MULTIPART, message_body

HEALED_WITHIN_S = 60
STEPS = ("txn.recorded", "txn.delivered", "txn.finished")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcProcesses]:
    """Two islands with a store each."""
    with tc_processes(tmp_path_factory.mktemp("islands"), 2) as running:
        yield running


def until(condition: Callable[[], bool]) -> None:
    ends_at_s = time.monotonic() + HEALED_WITHIN_S
    while not _holds(condition):
        assert time.monotonic() < ends_at_s, "it did not come to pass in time"
        time.sleep(0.1)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except httpx.TransportError:  # A node that has just been started.
        return False


def knows_both_stores(node: TcProcess) -> bool:
    return len(node.ask("/v1/tc/rm/list").json().get("backends", ())) == 2


def staged(node: TcProcess, key: str, txn_id: str) -> dict[str, Any]:
    asked = {"key": key, "owner": "w", "ttl_seconds": 60, "block_seconds": -1, "txn_id": txn_id}
    answer = node.ask("/v1/acquire", asked, as_="server")
    assert answer.status_code == 200, answer.text
    lease: dict[str, Any] = answer.json()
    updated = node.ask(f"/v1/update?key={key}", {"txn": txn_id}, as_="server", headers=claim(lease))
    assert updated.status_code == 200, updated.text
    return lease


def claim(lease: dict[str, Any]) -> dict[str, str]:
    return {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }


def release(node: TcProcess, lease: dict[str, Any], *, is_rollback: bool) -> None:
    """Its process may die meanwhile: then the answer is an error or none at all."""
    body = {name: lease[name] for name in ("key", "lease_id", "txn_id")} | {"rollback": is_rollback}
    with suppress(httpx.TransportError):
        node.ask("/v1/release", body, as_="server", headers=claim(lease))


def has(node: TcProcess, key: str, txn_id: str) -> bool:
    answer = node.ask(f"/v1/get?key={key}&public=1", {}, as_="server")
    return answer.status_code == 200 and answer.json() == {"txn": txn_id}


def is_free(node: TcProcess, key: str) -> bool:
    asked = {"key": key, "owner": "next", "ttl_seconds": 5, "block_seconds": -1}
    answer = node.ask("/v1/acquire", asked, as_="server")
    if answer.status_code != 200:
        return False
    lease = answer.json()
    release(node, lease, is_rollback=True)
    return True


def is_recorded(node: TcProcess, txn_id: str, decision: str) -> bool:
    answer = node.ask("/v1/txn/replay", {"txn_id": txn_id})
    return bool(answer.json().get("state") == decision)


def waiting_messages(node: TcProcess) -> int:
    answer = node.ask("/v1/queue/stats", {"queue": "orders"}, as_="server")
    return int(answer.json()["pending_candidates"])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.parametrize("decision", ["commit", "rollback"])
@pytest.mark.parametrize("step", STEPS)
def test_a_leader_that_dies_with_a_decision_on_two_islands_brings_it_to_both(
    cluster: TcProcesses, step: str, decision: str, kills: int
) -> None:
    for number in range(kills):
        check_a_life(cluster, step, number, is_commit=decision == "commit")


def check_a_life(cluster: TcProcesses, step: str, number: int, *, is_commit: bool) -> None:
    leader, _ = cluster.agreed(cluster.nodes)
    for node in cluster.nodes:
        until(partial(knows_both_stores, node))
    other = next(node for node in cluster.nodes if node is not leader)
    txn_id, keys = new_xid(), {leader: f"a-{step}-{number}", other: f"b-{step}-{number}"}
    leases = {node: staged(node, key, txn_id) for node, key in keys.items()}
    sending = message_body(b"follows", queue="orders", txn_id=txn_id)
    sent = other.ask("/v1/queue/enqueue", as_="server", headers=MULTIPART, content=sending)
    assert sent.status_code == 200, sent.text
    before = waiting_messages(other)
    leader.arm(f"{step}:crash")

    releasing = (leader, other)[number % 2]
    release(releasing, leases[releasing], is_rollback=not is_commit)
    leader.died()
    leader.start(cluster.urls)
    cluster.agreed(cluster.nodes)

    for node, key in keys.items():
        until(partial(is_free, node, key))  # By the sweep: no client asks for the decision before.
        assert has(node, key, txn_id) is is_commit
        until(partial(is_recorded, node, txn_id, "commit" if is_commit else "rollback"))
    assert waiting_messages(other) == before + is_commit
