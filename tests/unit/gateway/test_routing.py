"""Where a request goes: its service by its path, its replica by what it is about."""

import pytest

from holdfast.common.express.message import Request
from holdfast.common.role import Role
from holdfast.gateway.plane import declared_routers
from holdfast.gateway.routing import Affinity, is_repeatable, may_wait, service_of
from holdfast.gateway.settings import GatewaySettings


def _request(query: bytes = b"", body: bytes = b"") -> Request:
    return Request("POST", "/v1/any", query, [], body, None, None, "cid")


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
        ("/v3/kv/range", Role.STATE),
        ("/v1/queue/enqueue", Role.QUEUE),
        ("/v1/queue/dlq/list", Role.QUEUE),
        ("/enqueue", Role.QUEUE),
        ("/v1/txn/decide", Role.TXN),
        ("/v1/tc/leader", Role.TXN),
    ],
)
def test_a_path_belongs_to_one_service(path: str, service: Role) -> None:
    assert service_of(path) is service


def test_every_route_of_the_plane_belongs_to_the_service_that_declares_it() -> None:
    declared = declared_routers(GatewaySettings.isolated(store="mem://"))

    found = {
        (route.handler.__module__.split(".")[1], service_of(route.path).value)
        for router in declared
        for route in router.routes
    }

    assert found == {(service, service) for service in ("leases", "state", "queue", "txn")}


@pytest.mark.parametrize(
    ("service", "query", "body", "affinity"),
    [
        (Role.STATE, b"key=orders&namespace=n", b"", b"n\0orders"),
        (Role.STATE, b"key=orders", b"", b"default\0orders"),
        (Role.STATE, b"key=a%2Fb", b"", b"default\0a/b"),
        (Role.LEASES, b"", b'{"key":"orders","namespace":"n"}', b"n\0orders"),
        (Role.LEASES, b"", b'{"key":"orders"}', b"default\0orders"),
        (Role.LEASES, b"namespace=n", b'{"key":"orders"}', b"n\0orders"),
        (Role.STATE, b"key=orders", b'{"namespace":"n"}', b"n\0orders"),
        (Role.QUEUE, b"", b'{"queue":"work","key":"other"}', b"default\0work"),
        (Role.QUEUE, b"queue=work", b"--boundary\r\n", b"default\0work"),
        (Role.TXN, b"", b'{"txn_id":"t1"}', b"default\0t1"),
        (Role.LEASES, b"", b'{"key":7}', b""),
        (Role.LEASES, b"", b'{"key":', b""),
        (Role.LEASES, b"", b"[]", b""),
        (Role.LEASES, b"", b'{"key":"\xff"}', b""),
        (Role.QUEUE, b"", b"--boundary\r\n", b""),
        (Role.STATE, b"a=1&" * 300, b"", b""),
        (Role.STATE, b"", b"", b""),
    ],
)
def test_the_affinity_of_a_request_is_its_namespace_and_its_key(
    service: Role, query: bytes, body: bytes, affinity: bytes
) -> None:
    assert Affinity(service, "default").of(_request(query, body)) == affinity


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
def test_only_what_does_no_harm_twice_is_repeated(path: str, method: str, expected: bool) -> None:
    assert is_repeatable(path, method) is expected


def test_calls_that_wait_have_no_deadline_of_the_gateway() -> None:
    assert may_wait("/v1/acquire")
    assert may_wait("/v1/queue/subscribe")
    assert not may_wait("/v1/release")
