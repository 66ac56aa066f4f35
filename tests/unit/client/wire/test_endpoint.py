"""Endpoint lists as people write them."""

import random

import pytest

from holdfast.client.errors import InvalidArgument
from holdfast.client.options import ClientOptions
from holdfast.client.wire.connection import ServerConnection
from holdfast.client.wire.endpoint import EndpointOrder, parse_endpoints


@pytest.mark.parametrize(
    ("text", "is_mtls_on", "expected"),
    [
        ("plane", True, ["https://plane:9341"]),
        ("plane:1234", False, ["http://plane:1234"]),
        ("a, b:2 ,,c", True, ["https://a:9341", "https://b:2", "https://c:9341"]),
        ("http://a/prefix/", True, ["http://a:9341/prefix"]),
        ("[::1]:5", False, ["http://[::1]:5"]),
        ("a,a", False, ["http://a:9341"]),
    ],
)
def test_a_list_is_read(text: str, is_mtls_on: bool, expected: list[str]) -> None:
    assert [endpoint.base_url for endpoint in parse_endpoints(text, is_mtls_on=is_mtls_on)] == expected


def test_a_unix_socket_is_a_path_with_an_optional_prefix() -> None:
    (endpoint,) = parse_endpoints("unix:///run/my%20plane.sock?path=/v", is_mtls_on=True)

    assert (endpoint.socket_path, endpoint.base_url) == ("/run/my plane.sock", "http://unix/v")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://user:secret@a",
        "http://a?x=1",
        "unix://relative",
        "unix:///a.sock,http://b",
        ",".join(f"h{number}" for number in range(65)),
    ],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_endpoints(text, is_mtls_on=False)

    assert "secret" not in str(refused.value)


def test_every_endpoint_is_tried_in_an_order_of_its_own_and_the_preferred_one_first() -> None:
    endpoints = parse_endpoints("a,b,c,d", is_mtls_on=False)
    order = EndpointOrder(endpoints, random.Random(1))

    orders = {tuple(order.next()) for _ in range(50)}
    order.prefer(endpoints[2])
    preferred = [order.next() for _ in range(20)]

    assert len(orders) > 5
    assert all(set(one) == set(endpoints) for one in [*orders, *preferred])
    assert {one[0] for one in preferred} == {endpoints[2]}


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:9341"),
        ("localhost:1", "http://localhost:1"),
        ("plane", "https://plane:9341"),
    ],
)
def test_without_a_bundle_only_this_machine_is_trusted_in_the_clear(server: str, expected: str) -> None:
    connection = ServerConnection(server, ClientOptions())

    assert connection.endpoints[0].base_url == expected
