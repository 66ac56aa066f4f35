"""The HTTP connections of an app: of the listeners that serve all of it, or of one that serves some of its paths."""

import asyncio

import uvicorn
from fastapi import FastAPI
from uvicorn.server import ServerState

from holdfast.common.express.lane import Lane
from holdfast.common.express.protocol import bound_to


class HttpConnections:
    """Makes them; the lane has those that are open."""

    def __init__(self, app: FastAPI, lane: Lane, server_state: ServerState) -> None:
        self._protocol_class = bound_to(lane)
        self.config = uvicorn.Config(
            app,
            http=self._protocol_class,
            ws="none",
            lifespan="off",  # The server enters it, so that an error in it arrives as itself and not as a log line.
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self.config.load()
        self._state = server_state

    def connection(self) -> asyncio.Protocol:
        """The protocol of one connection, for `create_server`."""
        return self._protocol_class(self.config, self._state, {})
