"""Drives flows on an event loop."""

import asyncio
import time
from typing import Any, Final, TypeVar

import httpx

from holdfast.client.aio.pool import SHARD_CONNECTIONS, CallPool, TurnMissed
from holdfast.client.call import Answer, Call, Pool
from holdfast.client.connection import (
    CONNECTED,
    ERROR_BYTES_MAX,
    IDLE_S_MAX,
    Connection,
    answer_headers,
    check_size,
    headers_of,
    mapped_errors,
    timeout_of,
    url_of,
)
from holdfast.client.errors import ClientClosed, TransportFailed, TransportTimedOut
from holdfast.client.flow import Flow, Pause, Send

T = TypeVar("T")

_IDLE_WAIT_SHARDS: Final = 8


class Transport:
    """Connections by pool; closed by who opened it."""

    def __init__(self, connection: Connection) -> None:
        self._pools: dict[Pool, CallPool] = {
            "call": _call_pool(connection, "call"),
            "wait": _call_pool(connection, "wait"),
            "keepalive": _call_pool(connection, "keepalive"),
        }
        self._streams = {
            # What stays open has its connection for as long as its reader likes, so no turn ends with the call.
            "call": _open(connection, connection.limits("call")),
            "stream": _open(connection, connection.limits("stream")),
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
        if call.is_stream or call.pool == "stream":
            return await self._exchange_over(
                self._streams["stream" if call.pool == "stream" else "call"], step
            )
        asked_at_s = time.monotonic()
        try:
            async with self._pools[call.pool].client(timeout_of(call, step.timeout_s).pool) as client:
                queued_s = time.monotonic() - asked_at_s
                answer = await self._exchange_over(client, step)
        except TurnMissed as error:
            raise TransportTimedOut(f"{step.endpoint.name}: {error}", is_sent=False) from error
        answer.queued_s = queued_s
        return answer

    async def _exchange_over(self, client: httpx.AsyncClient, step: Send) -> Answer:
        call = step.call
        request = client.build_request(
            call.method,
            url_of(call, step.endpoint),
            headers=headers_of(call),
            content=None if call.body is None else call.body.async_chunks(),
            timeout=timeout_of(call, step.timeout_s),
            extensions=_trace(call),
        )
        with mapped_errors(step.endpoint):
            response = await client.send(request, stream=True)
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
        for client in self._streams.values():
            await client.aclose()


def _call_pool(connection: Connection, pool: Pool) -> CallPool:
    def open_client(number: int) -> httpx.AsyncClient:
        # Of waits only the first few leave their connections open: many may wait, and seldom.
        is_idle_kept = pool != "wait" or number < _IDLE_WAIT_SHARDS
        idle_max = SHARD_CONNECTIONS if is_idle_kept else 0
        limits = httpx.Limits(
            max_connections=SHARD_CONNECTIONS, max_keepalive_connections=idle_max, keepalive_expiry=IDLE_S_MAX
        )
        return _open(connection, limits)

    return CallPool(open_client, connection.connections_max(pool), may_wait=pool == "wait")


def _open(connection: Connection, limits: httpx.Limits) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(
        verify=connection.verify,
        limits=limits,
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
