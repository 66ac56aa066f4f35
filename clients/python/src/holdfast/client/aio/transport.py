"""Drives flows: sends what they ask for, and pauses for as long as they say."""

import time
from typing import Any, TypeVar

import httpx

from holdfast.client.aio.concurrency import Event, is_set_within
from holdfast.client.aio.pool import Pools
from holdfast.client.errors import ClientClosed, TransportFailed
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.connection import (
    CONNECTED,
    ERROR_BYTES_MAX,
    ServerConnection,
    answer_headers,
    check_size,
    headers_of,
    mapped_errors,
    timeout_of,
    url_of,
)
from holdfast.client.wire.flow import Flow, Pause, Send

T = TypeVar("T")


class Transport:
    """Closed by its owner. Belongs to one event loop."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._pools = Pools(connection, self._open)
        self._closed = Event()

    async def run(self, flow: Flow[T]) -> T:
        """Do what a flow asks for, until it returns; interrupted at any point, the request is hung up."""
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
        if self._closed.is_set():
            raise ClientClosed("this client is closed")
        if isinstance(step, Send):
            try:
                return await self._exchange(step)
            except RuntimeError as error:
                # What httpx says to a task whose client is closed by another one.
                if self._closed.is_set():
                    raise ClientClosed("this client was closed") from error
                raise
        if await is_set_within(self._closed, step.seconds):
            raise ClientClosed("this client was closed")
        return None

    async def _exchange(self, step: Send) -> Answer:
        timeout = timeout_of(step.call, step.timeout_s)
        asked_at_s = time.monotonic()
        with mapped_errors(step.endpoint):
            async with self._pools.client(step.call, timeout.pool) as client:
                queued_s = time.monotonic() - asked_at_s
                answer = await _answer(client, step, timeout)
        answer.queued_s = queued_s
        return answer

    def _open(self, limits: httpx.Limits) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(
            verify=self._connection.verify,
            limits=limits,
            uds=self._connection.socket_path,
            socket_options=self._connection.socket_options,
            trust_env=False,
        )
        return httpx.AsyncClient(transport=transport, trust_env=False)

    async def close(self) -> None:
        """Ends every wait between attempts, and the connections."""
        self._closed.set()
        await self._pools.close()


async def _answer(client: httpx.AsyncClient, step: Send, timeout: httpx.Timeout) -> Answer:
    call = step.call
    request = client.build_request(
        call.method,
        url_of(call, step.endpoint),
        headers=headers_of(call),
        content=None if call.body is None else call.body.async_chunks(),
        timeout=timeout,
        extensions=_trace(call),
    )
    response = await client.send(request, stream=True)
    if call.is_stream and response.status_code == 200:
        return Answer(200, answer_headers(response), response=response)
    try:
        is_success = response.status_code < 300
        body = await _read(response, call.answer_bytes_max if is_success else ERROR_BYTES_MAX)
    finally:
        await response.aclose()
    return Answer(response.status_code, answer_headers(response), body)


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
