"""Certificates for the endpoints of coordinators, asked for where TLS ends: the process behind may have none."""

from holdfast.common.express.hooks import Identify
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.principal import Permission
from holdfast.common.settings import PlaneSettings
from holdfast.txn.tc_access import TcAccess


def tc_gate(settings: PlaneSettings) -> Identify | None:
    """The check of every request; None when there is nothing to check."""
    access = TcAccess.of(settings)
    if not access.is_on:
        return None

    def check(route: Route, request: Request) -> None:
        permission = route.traits.permission
        if permission is Permission.COORDINATOR_SERVER:
            access.require_server(request)
        elif permission is Permission.COORDINATOR_CLIENT:
            access.require_client(request)

    return check
