"""Endpoints between coordinators on a plain single node, as lockd answers them."""

from typing import Final

import pytest

from tests.wire.lockd.conftest import Wire

A, B = "http://a:9341", "http://b:9341"

BAD_REGISTRATIONS: Final[list[tuple[object, str]]] = [
    (None, "missing_backend_hash"),
    ({}, "missing_backend_hash"),
    ({"backend_hash": " ", "endpoint": A}, "missing_backend_hash"),
    ({"backend_hash": "one"}, "missing_endpoint"),
    ({"backend_hash": "one", "endpoint": "  "}, "missing_endpoint"),
    ({"backend_hash": "one", "endpoint": "a:9341"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "ftp://a"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "http://"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "http://u:p@a"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "http://a?x=1"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "http://a#x"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "http://a:99999"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "http://[::1"}, "invalid_endpoint"),
    ({"backend_hash": "one", "endpoint": "http://" + "a" * 2000}, "invalid_endpoint"),
    ({"backend_hash": "x" * 300, "endpoint": A}, "invalid_body"),
    ({"backend_hash": 1, "endpoint": A}, "invalid_body"),
    (b"[]", "invalid_body"),
    (b"{", "invalid_body"),
]


@pytest.mark.parametrize("body", [None, {"leader_id": "a", "term": 1, "ttl_ms": 1}])
async def test_a_node_without_peers_takes_no_part_in_elections(
    wire: Wire, body: dict[str, object] | None
) -> None:
    for path in ("lease/acquire", "lease/renew", "lease/release", "leader"):
        answer = await wire.post(f"/v1/tc/{path}", body)

        assert (answer.status_code, answer.json()["error"]) == (503, "tc_unavailable")


async def test_a_get_asks_who_leads(wire: Wire) -> None:
    answer = await wire.get("/v1/tc/leader")

    assert (answer.status_code, answer.json()["error"]) == (503, "tc_unavailable")
    assert answer.headers["X-Correlation-Id"]


async def test_a_node_without_peers_says_so_before_it_reads_the_body(wire: Wire) -> None:
    for path in ("lease/acquire", "lease/renew", "lease/release"):
        answer = await wire.post(f"/v1/tc/{path}", b"{")

        assert (answer.status_code, answer.json()["error"]) == (503, "tc_unavailable")


async def test_without_a_certificate_nobody_is_a_member(wire: Wire) -> None:
    bodies: dict[str, list[object]] = {"announce": [{"self_endpoint": A}], "leave": [None, {}]}
    for path, sent in bodies.items():
        for body in sent:
            answer = await wire.post(f"/v1/tc/cluster/{path}", body, {"X-Lockd-TC-Leave-Fanout": "1"})

            assert (answer.status_code, answer.json()["error"]) == (403, "tc_cluster_identity_missing")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (None, "missing_self_endpoint"),
        ({}, "missing_self_endpoint"),
        ({"self_endpoint": " "}, "missing_self_endpoint"),
        ({"self_endpoint": "nonsense"}, "invalid_self_endpoint"),
        (b"{", "invalid_body"),
    ],
)
async def test_an_announcement_is_read_before_its_sender_is_identified(
    wire: Wire, body: object, code: str
) -> None:
    answer = await wire.post("/v1/tc/cluster/announce", body)

    assert (answer.status_code, answer.json()["error"]) == (400, code)


async def test_a_cluster_without_members_is_an_empty_list(wire: Wire) -> None:
    answer = await wire.get("/v1/tc/cluster/list")

    assert (answer.status_code, answer.json()) == (200, {"endpoints": []})


async def test_resource_managers_are_registered_listed_and_unregistered(wire: Wire) -> None:
    assert (await wire.get("/v1/tc/rm/list")).json() == {"backends": []}

    await wire.post("/v1/tc/rm/register", {"backend_hash": "two", "endpoint": A})
    await wire.post("/v1/tc/rm/register", {"backend_hash": "one", "endpoint": B})
    again = await wire.post(
        "/v1/tc/rm/register", {"backend_hash": " one ", "endpoint": f"{A}/x/../", "unknown": 1}
    )

    assert again.status_code == 200
    assert again.json().items() >= {"backend_hash": "one", "endpoints": [A, B]}.items()
    listed = (await wire.get("/v1/tc/rm/list")).json()
    assert [(one["backend_hash"], one["endpoints"]) for one in listed["backends"]] == [
        ("one", [A, B]),
        ("two", [A]),
    ]
    assert listed["updated_at_unix"] == max(one["updated_at_unix"] for one in listed["backends"])

    await wire.post("/v1/tc/rm/unregister", {"backend_hash": "two", "endpoint": A})
    left = await wire.post("/v1/tc/rm/unregister", {"backend_hash": "one", "endpoint": A})

    assert left.json()["endpoints"] == [B]
    assert [one["backend_hash"] for one in (await wire.get("/v1/tc/rm/list")).json()["backends"]] == ["one"]


async def test_unregistering_what_is_not_registered_changes_nothing(wire: Wire) -> None:
    answer = await wire.post("/v1/tc/rm/unregister", {"backend_hash": "none", "endpoint": A})

    assert (answer.status_code, answer.json()["endpoints"]) == (200, [])


async def test_a_bad_registration_is_refused(wire: Wire) -> None:
    for path in ("register", "unregister"):
        for body, code in BAD_REGISTRATIONS:
            answer = await wire.post(f"/v1/tc/rm/{path}", body)

            assert (answer.status_code, answer.json()["error"]) == (400, code), body
