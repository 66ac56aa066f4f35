"""Drives flows on an event loop."""

import asyncio
from typing import Any, TypeVar

import httpx

from holdfast.client.call import Answer, Call, Pool
from holdfast.client.connection import (
    CONNECTED,
    ERROR_BYTES_MAX,
    Connection,
    answer_headers,
    check_size,
    headers_of,
    mapped_errors,
    timeout_of,
    url_of,
)
from holdfast.client.errors import ClientClosed, TransportFailed
from holdfast.client.flow import Flow, Pause, Send

T = TypeVar("T")


class Transport:
    """Connections by pool; closed by who opened it."""

    def __init__(self, connection: Connection) -> None:
        self._pools: dict[Pool, httpx.AsyncClient] = {
            "call": _open(connection, "call"),
            "wait": _open(connection, "wait"),
            "keepalive": _open(connection, "keepalive"),
            "stream": _open(connection, "stream"),
        }
        self._is_closed = False

    async def run(self, flow: Flow[T]) -> T:
        """Do what a flow asks for, until it returns; cancelled at any point, the request is hung up."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step)
                except TransportFailed as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Send | Pause) -> Answer | None:
        if self._is_closed:
            raise ClientClosed("this client is closed")
        if isinstance(step, Send):
            try:
                return await self._exchange(step)
            except RuntimeError as error:
                # What httpx says to a task whose client is closed by another one.
                if self._is_closed:
                    raise ClientClosed("this client was closed") from error
                raise
        await asyncio.sleep(step.seconds)
        return None

    async def _exchange(self, step: Send) -> Answer:
        call = step.call
        pool = self._pools[call.pool]
        request = pool.build_request(
            call.method,
            url_of(call, step.endpoint),
            headers=headers_of(call),
            content=None if call.body is None else call.body.async_chunks(),
            timeout=timeout_of(call, step.timeout_s),
            extensions=_trace(call),
        )
        with mapped_errors(step.endpoint):
            response = await pool.send(request, stream=True)
            if call.is_stream and response.status_code == 200:
                return Answer(200, answer_headers(response), response=response)
            try:
                is_success = response.status_code < 300
                body = await _read(response, call.answer_bytes_max if is_success else ERROR_BYTES_MAX)
            finally:
                await response.aclose()
        return Answer(response.status_code, answer_headers(response), body)

    async def close(self) -> None:
        self._is_closed = True
        for pool in self._pools.values():
            await pool.aclose()


def _open(connection: Connection, pool: Pool) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(
        verify=connection.verify,
        limits=connection.limits(pool),
        uds=connection.socket_path,
        socket_options=connection.socket_options,
        trust_env=False,
    )
    return httpx.AsyncClient(transport=transport, trust_env=False)


def _trace(call: Call) -> dict[str, Any] | None:
    """Lets a call know the socket of its fresh connection."""
    on_connected = call.on_connected
    if on_connected is None:
        return None

    async def trace(event: str, info: dict[str, Any]) -> None:
        if event in CONNECTED:
            on_connected(info["return_value"].get_extra_info("socket"))

    return {"trace": trace}


async def _read(response: httpx.Response, bytes_max: int) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        check_size(len(content), bytes_max)
    return bytes(content)
