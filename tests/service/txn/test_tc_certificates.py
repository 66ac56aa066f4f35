"""Which certificate opens which endpoint between coordinators, and what each of them refuses."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.ids import new_xid
from tests.infra.program import free_port
from tests.service.common.certificates import Authority, pem
from tests.service.txn.tc_node import Certificates, TcNode, tc_node, until

SERVERS_ONLY = ("cluster/announce", "cluster/leave", "rm/register", "rm/unregister")
CLIENTS = ("lease/acquire", "lease/renew", "lease/release", "leader", "cluster/list", "rm/list")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def certificates(authority: Authority, tmp_path: Path) -> Certificates:
    return Certificates(authority, tmp_path / "bundles", "a")


@pytest.fixture(params=["lane", "asgi"])
async def node(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path
) -> AsyncIterator[TcNode]:
    """A node of a cluster of one; its lease is long enough to be stepped on."""
    is_express = request.param == "lane"
    flags = {"tc_leader_ttl_s": "10s"}
    async with tc_node(certificates, tmp_path, port=free_port(), is_express=is_express, **flags) as running:
        yield running


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_a_fresh_server_trusts_no_one_with_its_coordinator(
    certificates: Certificates, tmp_path: Path, is_express: bool
) -> None:
    async with tc_node(certificates, tmp_path, is_express=is_express, tc_default_ca_allowed=False) as node:
        for path in (*SERVERS_ONLY, *CLIENTS):
            answer = await node.post(f"/v1/tc/{path}", {})

            assert (answer.status_code, answer.json()["error"]) == (403, "tc_forbidden"), path


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_a_stranger_is_refused_before_its_body_is_read(
    certificates: Certificates, tmp_path: Path, is_express: bool
) -> None:
    paths = [f"/v1/tc/{path}" for path in (*SERVERS_ONLY, *CLIENTS)]
    paths += [f"/v1/txn/{path}" for path in ("decide", "commit", "rollback", "replay")]
    async with tc_node(certificates, tmp_path, is_express=is_express, tc_default_ca_allowed=False) as node:
        for path in paths:
            answer = await node.post(path, "no object")

            assert (answer.status_code, answer.json()["error"]) == (403, "tc_forbidden"), path


async def test_a_ca_in_the_trust_directory_is_trusted(
    authority: Authority, certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "tc-trust.d").mkdir()
    (tmp_path / "tc-trust.d" / "ca-1.pem").write_bytes(pem(authority.certificate))

    async with tc_node(certificates, tmp_path, tc_default_ca_allowed=False) as node:
        assert (await node.get("/v1/tc/cluster/list")).json() == {"endpoints": []}


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_a_node_of_another_island_may_speak_to_the_coordinator_and_to_nothing_else(
    certificates: Certificates, tmp_path: Path, is_express: bool
) -> None:
    foreign = Authority()
    other = Certificates(foreign, tmp_path / "foreign", "other")
    other.contexts["server"].load_verify_locations(
        cadata=pem(certificates.bundle.ca_certificates[0]).decode()
    )
    (tmp_path / "tc-trust.d").mkdir()
    (tmp_path / "tc-trust.d" / "ca-1.pem").write_bytes(pem(foreign.certificate))

    async with (
        tc_node(certificates, tmp_path, is_express=is_express, tc_default_ca_allowed=False) as node,
        httpx.AsyncClient(
            base_url=node.url, verify=other.contexts["server"], trust_env=False, timeout=20
        ) as client,
    ):
        announced = await client.post("/v1/tc/cluster/announce", json={"self_endpoint": "https://other"})
        replayed = await client.post("/v1/txn/replay", json={"txn_id": new_xid()})
        acquired = await client.post("/v1/acquire", json={"key": "k", "owner": "w", "ttl_seconds": 5})
        own = await node.post("/v1/acquire", {"key": "k", "owner": "w", "ttl_seconds": 5}, as_="client")

    assert announced.json()["endpoints"] == ["https://other"]
    assert (replayed.status_code, replayed.json()["error"]) == (404, "txn_not_found")
    assert (acquired.status_code, acquired.json()["error"]) == (403, "client_forbidden")
    assert own.status_code == 200


async def test_checks_can_be_switched_off_but_a_member_still_needs_its_identity(
    certificates: Certificates, tmp_path: Path
) -> None:
    off = {"tc_default_ca_allowed": False, "tc_auth_disabled": True}
    async with tc_node(certificates, tmp_path, **off) as node:
        assert (await node.get("/v1/tc/cluster/list")).status_code == 200
        answer = await node.post("/v1/tc/cluster/announce", {"self_endpoint": "https://a"}, as_="nameless")

    assert (answer.status_code, answer.json()["error"]) == (403, "tc_cluster_identity_missing")


async def test_clients_may_look_and_vote_but_not_speak_for_servers(node: TcNode) -> None:
    for path in SERVERS_ONLY:
        answer = await node.post(f"/v1/tc/{path}", {}, as_="client")
        assert (answer.status_code, answer.json()["error"]) == (403, "tc_forbidden"), path
    for path in CLIENTS:
        assert (await node.post(f"/v1/tc/{path}", {}, as_="client")).status_code != 403, path


async def test_a_server_without_an_identity_is_no_member(node: TcNode) -> None:
    for path in ("announce", "leave"):
        body = {"self_endpoint": "https://a"}
        answer = await node.post(f"/v1/tc/cluster/{path}", body, as_="nameless")
        assert (answer.status_code, answer.json()["error"]) == (403, "tc_cluster_identity_missing")


async def test_a_member_that_is_not_reached_anywhere_is_refused(node: TcNode) -> None:
    for body in (None, {}, {"self_endpoint": " "}):
        answer = await node.post("/v1/tc/cluster/announce", body)
        assert (answer.status_code, answer.json()["error"]) == (400, "missing_self_endpoint")
    for url in ("a", "ftp://a", "https://u@a", "https://a?b", "https://"):
        answer = await node.post("/v1/tc/cluster/announce", {"self_endpoint": url})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_self_endpoint"), url


async def test_an_announced_member_is_listed_and_one_that_left_is_not(
    certificates: Certificates, authority: Authority, tmp_path: Path
) -> None:
    async with tc_node(certificates, tmp_path) as node:
        announced = (await node.post("/v1/tc/cluster/announce", {"self_endpoint": "https://B:1/"})).json()
        listed = (await node.get("/v1/tc/cluster/list")).json()
        left = (await node.post("/v1/tc/cluster/leave", {})).json()

    assert announced["endpoints"] == ["https://b:1"]
    assert announced["expires_at_unix"] == announced["updated_at_unix"] + 3000
    assert listed == {"endpoints": ["https://b:1"], "updated_at_unix": announced["updated_at_unix"]}
    assert left["endpoints"] == []


async def test_a_bad_call_about_the_lease_is_refused(node: TcNode) -> None:
    candidate = {"candidate_id": "x", "candidate_endpoint": "https://x", "term": 1, "ttl_ms": 1000}
    leader = {"leader_id": "x", "term": 1, "ttl_ms": 1000}
    cases: list[tuple[str, object, str]] = [
        ("acquire", None, "missing_candidate_id"),
        ("acquire", {**candidate, "candidate_id": " "}, "missing_candidate_id"),
        ("acquire", {**candidate, "candidate_endpoint": ""}, "missing_candidate_endpoint"),
        ("acquire", {**candidate, "candidate_endpoint": "x"}, "invalid_endpoint"),
        ("acquire", {**candidate, "term": 0}, "invalid_term"),
        ("acquire", {**candidate, "term": (1 << 64) - 1}, "invalid_term"),
        ("acquire", {**candidate, "term": -1}, "invalid_body"),
        ("acquire", {**candidate, "term": 1.5}, "invalid_body"),
        ("acquire", {**candidate, "ttl_ms": 0}, "invalid_ttl"),
        ("acquire", {**candidate, "ttl_ms": -5}, "invalid_ttl"),
        ("acquire", {**candidate, "ttl_ms": 1 << 60}, "invalid_ttl"),
        ("acquire", {**candidate, "candidate_id": "x" * 300}, "invalid_body"),
        ("renew", {**leader, "leader_id": None}, "missing_leader_id"),
        ("renew", {**leader, "term": None}, "invalid_term"),
        ("renew", {**leader, "ttl_ms": None}, "invalid_ttl"),
        ("release", {"term": 1}, "missing_leader_id"),
        ("release", {"leader_id": "x"}, "invalid_term"),
    ]
    for path, body, code in cases:
        answer = await node.post(f"/v1/tc/lease/{path}", body, as_="client")
        assert (answer.status_code, answer.json()["error"]) == (400, code), (path, body)


async def test_a_lease_that_is_held_is_refused_with_the_name_of_its_holder(
    node: TcNode, certificates: Certificates
) -> None:
    await until(node.term)
    leader = await node.leader()
    figures = (await node.get("/metrics")).text
    for figure in ("is_leader 1", "term 1", "members 1"):
        assert f"holdfast_tc_{figure}\n" in figures
    assert leader["leader_id"] == certificates.identity
    assert leader["leader_endpoint"] == node.url
    other = {"candidate_id": "x", "candidate_endpoint": "https://x", "term": leader["term"] + 1, "ttl_ms": 1}
    renewal = {"leader_id": "x", "term": leader["term"], "ttl_ms": 1}

    for path, body in (("acquire", other), ("renew", renewal), ("release", renewal)):
        answer = await node.post(f"/v1/tc/lease/{path}", body, as_="client")
        assert (answer.status_code, answer.json()["error"]) == (409, "tc_lease_active")
        assert answer.json()["leader_endpoint"] == node.url


async def test_a_peer_votes_follows_and_lets_go(certificates: Certificates, tmp_path: Path) -> None:
    flags: dict[str, Any] = {
        "tc_leader_ttl_s": "10s",
        "tc_fixed_quorum": 3,
    }  # So it can't lead, and waits for another.
    async with tc_node(certificates, tmp_path, port=free_port(), **flags) as node:
        candidate = {"candidate_id": "x", "candidate_endpoint": "https://X/", "term": 50, "ttl_ms": 60_000}
        leader = {"leader_id": "x", "term": 50, "ttl_ms": 60_000}

        voted = await node.post("/v1/tc/lease/acquire", candidate)
        seen = await node.leader()
        renewed = await node.post("/v1/tc/lease/renew", leader)
        followed = await node.leader()
        stale = await node.post("/v1/tc/lease/acquire", {**candidate, "term": 49})
        released = await node.post("/v1/tc/lease/release", leader)

    named = {"leader_id": "x", "leader_endpoint": "https://x", "term": 50}
    assert voted.json().items() >= {"granted": True, **named}.items()
    assert seen == {"term": 50, "expires_at": voted.json()["expires_at"]}
    assert renewed.json().items() >= {"renewed": True, **named}.items()
    assert followed == {**named, "expires_at": renewed.json()["expires_at"]}
    assert (stale.status_code, stale.json()["error"]) == (409, "tc_term_stale")
    assert stale.json()["leader_endpoint"] == "https://x"
    assert released.json() == {"released": True}
