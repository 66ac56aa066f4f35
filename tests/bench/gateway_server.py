"""The processes of the gateway benchmark: `python -m tests.bench.gateway_server service STORE | gateway URL`."""

import socket
import sys

from holdfast.common.role import Role
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import serve
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import gateway_settings, with_identity


def main(kind: str, argument: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    if kind == "service":
        app = with_identity(create_app(GatewaySettings.isolated(store=argument, qrf_disabled=True)))
    else:
        app = create_app(gateway_settings([argument], qrf_disabled=True), Role.GATEWAY)
    print(port, flush=True)  # noqa: T201 - the parent reads it
    serve(app, Listener(f"127.0.0.1:{port}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
