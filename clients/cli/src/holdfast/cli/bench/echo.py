"""What a request costs without any work in it: `python -m holdfast.cli.bench.echo` serves an echo by the express lane."""

import sys

from pydantic import BaseModel

from holdfast.cli.bench.load import ECHO_PATH
from holdfast.cli.serve import url_of
from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.app import build_app
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import PlaneServer, serve


class Echo(BaseModel):
    """The members of an acquire."""

    key: str
    owner: str
    ttl_seconds: int = 0
    block_seconds: int = 0


async def _echo(request: Request, body: Echo) -> Answer:
    return json_answer(body)


def _announce(server: PlaneServer) -> None:
    sys.stdout.write(f"holdfast is ready at {url_of(server.addresses[0], is_tls=False)} as an echo\n")
    sys.stdout.flush()


def main() -> None:
    router = ExpressRouter()
    router.add(ECHO_PATH, _echo, request_model=Echo, response_model=Echo)
    serve(build_app("bench", express_routers=[router]), Listener("127.0.0.1:0"), on_started=_announce)


if __name__ == "__main__":
    main()
