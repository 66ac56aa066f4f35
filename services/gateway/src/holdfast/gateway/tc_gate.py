"""Certificates for the endpoints of coordinators, asked for where TLS ends: the process behind may have none."""

from typing import Final

from holdfast.common.express.hooks import Identify
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.settings import PlaneSettings
from holdfast.txn.tc_access import TcAccess
from holdfast.txn.tc_routes import SERVERS_ONLY

_COORDINATORS: Final = ("/v1/tc/", "/v1/txn/")


def tc_gate(settings: PlaneSettings) -> Identify | None:
    """The check of every request; None when there is nothing to check."""
    access = TcAccess.of(settings)
    if not access.is_on:
        return None

    def check(route: Route, request: Request) -> None:
        if route.path in SERVERS_ONLY:
            access.require_server(request)
        elif route.path.startswith(_COORDINATORS):
            access.require_client(request)

    return check
