"""A server program for the tests of shutdown: `python -m tests.system.serve.stopped_program LEASES` prints its port."""

import asyncio
import sys

from holdfast.common.express.message import Answer, Request
from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.app import build_app
from holdfast.common.serving.drain import Drain
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import PlaneServer, ServeOptions, serve


def main(leases: int) -> None:
    held = leases
    drain = Drain(active_leases=lambda: held)
    router = ExpressRouter()

    async def work(request: Request, body: None) -> Answer:
        await asyncio.sleep(0.005)  # The work itself, not a wait for something else.
        return Answer(200, b"done")

    async def acquire(request: Request, body: None) -> Answer:
        drain.refuse_new_work()
        return Answer(200, b"lease")

    async def release(request: Request, body: None) -> Answer:
        nonlocal held
        held -= 1
        drain.lease_ended()
        return Answer(200, b"released")

    async def stuck(request: Request, body: None) -> Answer:
        await asyncio.Event().wait()
        return Answer(200)

    for path, handler in (("/work", work), ("/acquire", acquire), ("/release", release), ("/stuck", stuck)):
        router.add(path, handler)
    app = build_app("sample", express_routers=[router], drain=drain)

    async def plain() -> str:
        return "done"

    app.add_api_route("/plain", plain, methods=["POST"])
    options = ServeOptions(drain_grace_s=60, shutdown_timeout_s=60)
    serve(app, Listener("127.0.0.1:0"), options=options, on_started=_print_port)


def _print_port(server: PlaneServer) -> None:
    address = server.addresses[0]
    print(address[1], flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(int(sys.argv[1]))
