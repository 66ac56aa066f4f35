"""The servers that the HTTP benchmark compares: `python -m tests.bench.http_server lane|asgi|fastapi` prints its port."""

import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.app import build_app
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, serve

PATH = "/v1/acquire"


class Acquire(BaseModel):
    key: str
    owner: str
    ttl_seconds: int = 0
    block_seconds: int = 0


async def _acquire(request: Request, body: Acquire) -> Answer:
    return json_answer(body)


def _lane_app() -> FastAPI:
    router = ExpressRouter()
    router.add(PATH, _acquire, request_model=Acquire, response_model=Acquire)
    return build_app("bench", express_routers=[router])


def _plain_fastapi() -> FastAPI:
    app = FastAPI()

    async def acquire(body: Acquire) -> Acquire:
        return body

    app.add_api_route(PATH, acquire, methods=["POST"], response_model=Acquire)
    return app


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(kind: str) -> None:
    port = _free_port()
    print(port, flush=True)  # noqa: T201 - the parent reads it
    if kind in {"lane", "lane-as-asgi"}:
        options = ServeOptions(is_express=kind == "lane")
        serve(_lane_app(), Listener(f"127.0.0.1:{port}"), options=options)
        return
    app = _echo if kind == "asgi" else _plain_fastapi()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="error",
        lifespan="off",
    )


if __name__ == "__main__":
    main(sys.argv[1])
