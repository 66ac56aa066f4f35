"""Where a request goes: its service and its replica, as its route declares."""

import pytest

from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.express.traits import Begins, Duration, Group
from holdfast.common.role import Role
from holdfast.common.security.principal import Permission
from holdfast.gateway.composition import declared_routers
from holdfast.gateway.proxy.affinity import Affinity
from holdfast.gateway.settings import GatewaySettings


def _request(query: bytes = b"", body: bytes = b"") -> Request:
    return Request("POST", "/v1/any", query, [], body, None, None, "cid")


@pytest.fixture(scope="module")
def routes() -> list[Route]:
    """Those at other prefixes of etcd's API are like those at its first one."""
    declared = declared_routers(GatewaySettings.isolated(store="mem://"))
    return [
        route
        for router in declared
        for route in router.routes
        if not route.path.startswith(("/v3alpha/", "/v3beta/"))
    ]


@pytest.fixture
def by_path(routes: list[Route]) -> dict[str, Route]:
    return {route.path: route for route in routes}


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("/v1/acquire", Role.LEASES),
        ("/v1/keepalive", Role.LEASES),
        ("/v1/keepalive/batch", Role.LEASES),
        ("/v1/release", Role.LEASES),
        ("/v1/describe", Role.LEASES),
        ("/v1/get", Role.STATE),
        ("/v1/query", Role.STATE),
        ("/v1/attachments", Role.STATE),
        ("/v1/namespace", Role.STATE),
        ("/v1/queue/enqueue", Role.QUEUE),
        ("/v1/queue/dlq/list", Role.QUEUE),
        ("/v1/txn/decide", Role.TXN),
        ("/v1/tc/leader", Role.TXN),
        ("/v3/kv/put", Role.STATE),
    ],
)
def test_a_path_belongs_to_one_service(by_path: dict[str, Route], path: str, service: Role) -> None:
    assert by_path[path].traits.service is service


def test_every_route_of_the_plane_belongs_to_the_service_that_declares_it(routes: list[Route]) -> None:
    found = {(route.handler.__module__.split(".")[1], str(route.traits.service)) for route in routes}

    assert found == {(service, service) for service in ("leases", "state", "queue", "txn")}


@pytest.mark.parametrize(
    ("name", "query", "body", "affinity"),
    [
        ("key", b"key=orders&namespace=n", b"", b"n\0orders"),
        ("key", b"key=orders", b"", b"default\0orders"),
        ("key", b"key=a%2Fb", b"", b"default\0a/b"),
        ("key", b"", b'{"key":"orders","namespace":"n"}', b"n\0orders"),
        ("key", b"", b'{"key":"orders"}', b"default\0orders"),
        ("key", b"namespace=n", b'{"key":"orders"}', b"n\0orders"),
        ("key", b"key=orders", b'{"namespace":"n"}', b"n\0orders"),
        ("queue", b"", b'{"queue":"work","key":"other"}', b"default\0work"),
        ("queue", b"queue=work", b"--boundary\r\n", b"default\0work"),
        ("txn_id", b"", b'{"txn_id":"t1"}', b"default\0t1"),
        ("key", b"", b'{"key":7}', b""),
        ("key", b"", b'{"key":', b""),
        ("key", b"", b"[]", b""),
        ("key", b"", b'{"key":"\xff"}', b""),
        ("queue", b"", b"--boundary\r\n", b""),
        ("key", b"a=1&" * 300, b"", b""),
        ("key", b"", b"", b""),
    ],
)
def test_the_affinity_of_a_request_is_its_namespace_and_its_key(
    name: str, query: bytes, body: bytes, affinity: bytes
) -> None:
    assert Affinity(name, "default").of(_request(query, body)) == affinity


def test_each_service_names_what_its_calls_are_about(routes: list[Route]) -> None:
    found = {(route.traits.service, route.traits.affinity) for route in routes}

    assert found == {
        (Role.LEASES, "key"),
        (Role.LEASES, None),  # Signals are heard at every process.
        (Role.STATE, "key"),
        (Role.STATE, None),  # Of etcd's keys, and of watches, no process has more in memory than another.
        (Role.QUEUE, "queue"),
        (Role.TXN, "txn_id"),
        (Role.TXN, None),
    }


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/v1/get", "POST", True),
        ("/v1/keepalive", "POST", True),
        ("/v1/keepalive/batch", "POST", True),
        ("/v1/describe", "GET", True),
        ("/v1/attachment", "GET", True),
        ("/v1/attachment", "DELETE", False),
        ("/v1/acquire", "POST", False),
        ("/v1/release", "POST", False),
        ("/v1/queue/dequeue", "POST", False),
        ("/v1/queue/extend", "POST", False),
        ("/v1/txn/decide", "GET", False),
    ],
)
def test_only_what_does_no_harm_twice_is_repeated(
    by_path: dict[str, Route], path: str, method: str, expected: bool
) -> None:
    assert (method in by_path[path].traits.repeatable) is expected


def test_all_that_may_be_sent_twice(routes: list[Route]) -> None:
    found = {route.path for route in routes if "POST" in route.traits.repeatable}

    assert found == {
        "/v1/get",
        "/v1/keepalive",
        "/v1/keepalive/batch",
        "/v1/locks/renew",
        "/v1/query",
        "/v1/queue/dlq/list",
        "/v1/queue/peek",
        "/v1/queue/stats",
        "/v3/auth/authenticate",
        "/v3/cluster/member/list",
        "/v3/election/leader",
        "/v3/election/observe",
        "/v3/election/resign",
        "/v3/kv/lease/leases",
        "/v3/kv/lease/timetolive",
        "/v3/kv/range",
        "/v3/lease/keepalive",
        "/v3/lease/leases",
        "/v3/lease/timetolive",
        "/v3/lock/unlock",
        "/v3/maintenance/alarm",
        "/v3/maintenance/defragment",
        "/v3/maintenance/hash",
        "/v3/maintenance/status",
        "/v3/watch",
    }


def test_calls_that_wait_have_no_deadline_of_the_gateway(routes: list[Route]) -> None:
    found = {route.path: route.traits.duration for route in routes if not route.traits.duration.has_deadline}

    assert found == {
        "/v1/acquire": Duration.WAITING,
        "/v1/locks/acquire": Duration.WAITING,
        "/v1/locks/wait": Duration.WAITING,
        "/v1/query": Duration.LONG,
        "/v1/queue/dequeue": Duration.WAITING,
        "/v1/queue/dequeueBatch": Duration.WAITING,
        "/v1/queue/dequeueWithState": Duration.WAITING,
        "/v1/queue/subscribe": Duration.ENDLESS,
        "/v1/queue/subscribeWithState": Duration.ENDLESS,
        "/v1/queue/watch": Duration.ENDLESS,
        "/v1/signals": Duration.ENDLESS,
        "/v1/watch": Duration.ENDLESS,
        "/v3/election/campaign": Duration.WAITING,
        "/v3/election/observe": Duration.ENDLESS,
        "/v3/lock/lock": Duration.WAITING,
        "/v3/watch": Duration.ENDLESS,
    }


def test_every_path_that_is_held_back_says_so(routes: list[Route]) -> None:
    found = {
        route.path.removeprefix("/v1/"): (route.traits.admission.group, route.traits.admission.begins)
        for route in routes
        if route.traits.admission is not None
    }

    assert found == {
        "acquire": (Group.LOCK, Begins.ALWAYS),
        "keepalive": (Group.LOCK, Begins.NEVER),
        "keepalive/batch": (Group.LOCK, Begins.NEVER),
        "release": (Group.LOCK, Begins.NEVER),
        "locks/acquire": (Group.LOCK, Begins.ALWAYS),
        "locks/enqueue": (Group.LOCK, Begins.ALWAYS),
        "locks/wait": (Group.LOCK, Begins.NEVER),
        "locks/renew": (Group.LOCK, Begins.NEVER),
        "locks/release": (Group.LOCK, Begins.NEVER),
        "signals": (Group.LOCK, Begins.ALWAYS),
        "get": (Group.LOCK, Begins.IF_PUBLIC),
        "update": (Group.LOCK, Begins.NEVER),
        "mutate": (Group.LOCK, Begins.NEVER),
        "remove": (Group.LOCK, Begins.NEVER),
        "metadata": (Group.LOCK, Begins.NEVER),
        "attachments": (Group.LOCK, Begins.IF_PUBLIC),
        "attachment": (Group.LOCK, Begins.IF_PUBLIC),
        "query": (Group.QUERY, Begins.ALWAYS),
        "queue/enqueue": (Group.PRODUCER, Begins.ALWAYS),
        "queue/enqueueBatch": (Group.PRODUCER, Begins.ALWAYS),
        "queue/dequeue": (Group.CONSUMER, Begins.ALWAYS),
        "queue/dequeueBatch": (Group.CONSUMER, Begins.ALWAYS),
        "queue/dequeueWithState": (Group.CONSUMER, Begins.ALWAYS),
        "queue/subscribe": (Group.CONSUMER, Begins.ALWAYS),
        "queue/subscribeWithState": (Group.CONSUMER, Begins.ALWAYS),
        "queue/ack": (Group.ACK, Begins.NEVER),
        "queue/ackBatch": (Group.ACK, Begins.NEVER),
        "queue/nack": (Group.ACK, Begins.NEVER),
        "queue/extend": (Group.ACK, Begins.NEVER),
        "/v3/kv/range": (Group.QUERY, Begins.ALWAYS),
        "/v3/kv/put": (Group.LOCK, Begins.ALWAYS),
        "/v3/kv/deleterange": (Group.LOCK, Begins.ALWAYS),
        "/v3/kv/txn": (Group.LOCK, Begins.ALWAYS),
        "/v3/watch": (Group.QUERY, Begins.ALWAYS),
        "/v3/lease/grant": (Group.LOCK, Begins.ALWAYS),
        "/v3/lease/keepalive": (Group.LOCK, Begins.NEVER),
        "/v3/lease/revoke": (Group.LOCK, Begins.NEVER),
        "/v3/lease/timetolive": (Group.QUERY, Begins.ALWAYS),
        "/v3/lease/leases": (Group.QUERY, Begins.ALWAYS),
        "/v3/kv/lease/revoke": (Group.LOCK, Begins.NEVER),
        "/v3/kv/lease/timetolive": (Group.QUERY, Begins.ALWAYS),
        "/v3/kv/lease/leases": (Group.QUERY, Begins.ALWAYS),
        "/v3/lock/lock": (Group.LOCK, Begins.ALWAYS),
        "/v3/lock/unlock": (Group.LOCK, Begins.NEVER),
        "/v3/election/campaign": (Group.LOCK, Begins.ALWAYS),
        "/v3/election/proclaim": (Group.LOCK, Begins.NEVER),
        "/v3/election/resign": (Group.LOCK, Begins.NEVER),
        "/v3/election/leader": (Group.QUERY, Begins.ALWAYS),
        "/v3/election/observe": (Group.QUERY, Begins.ALWAYS),
        "/v3/maintenance/hash": (Group.QUERY, Begins.ALWAYS),
    }


def test_every_prefix_of_the_etcd_api_has_the_same_routes() -> None:
    found: dict[str, dict[tuple[str, str], object]] = {}
    for router in declared_routers(GatewaySettings.isolated(store="mem://")):
        for route in router.routes:
            prefix, _, path = route.path[1:].partition("/")
            for method in route.methods:
                found.setdefault(prefix, {})[path, method] = route.traits, route.body_limit_bytes

    assert found["v3"] == found["v3beta"] == found["v3alpha"]
    assert {method for _, method in found["v3"]} == {"POST", "OPTIONS"}


def test_endpoints_of_coordinators_ask_for_more_than_a_client(routes: list[Route]) -> None:
    found = {
        permission: {route.path for route in routes if route.traits.permission is permission}
        for permission in Permission
    }

    assert found[Permission.INTERNAL] == set()
    assert found[Permission.COORDINATOR_SERVER] == {
        "/v1/tc/cluster/announce",
        "/v1/tc/cluster/leave",
        "/v1/tc/rm/register",
        "/v1/tc/rm/unregister",
    }
    assert found[Permission.COORDINATOR_CLIENT] == {
        route.path
        for route in routes
        if route.path.startswith(("/v1/tc/", "/v1/txn/"))
        and route.path not in found[Permission.COORDINATOR_SERVER]
    }
