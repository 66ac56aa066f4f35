"""Every route of the plane has a case over plain ASGI, and every case is a test that exists."""

import importlib

import pytest

from holdfast.gateway.composition import declared_routers
from holdfast.gateway.settings import GatewaySettings
from tests.wire.lockd.asgi_cases import ASGI_CASES

ETCD = ("/v3/", "/v3beta/", "/v3alpha/")
"""All recordings of `tests/wire/etcd` run over plain ASGI, too."""


def test_every_route_has_a_case() -> None:
    routers = declared_routers(GatewaySettings.isolated(store="mem://"))
    routes = [
        [f"{method} {route.path}" for method in route.methods]
        for one in routers
        for route in one.routes
        if not route.path.startswith(ETCD)
    ]

    assert [names for names in routes if ASGI_CASES.keys().isdisjoint(names)] == []
    assert ASGI_CASES.keys() <= {name for names in routes for name in names}


@pytest.mark.parametrize("case", sorted(set(ASGI_CASES.values())))
def test_every_case_is_a_test(case: str) -> None:
    module, _, name = case.partition("::")

    assert callable(getattr(importlib.import_module(f"tests.wire.lockd.{module}"), name))
