"""Calls of an operation, counted by how they end."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import pytest

from holdfast.common.errors import InvalidBody
from holdfast.common.express.execution import Hooks, execute
from holdfast.common.express.message import Answer, Request
from holdfast.common.express.route import Route
from holdfast.common.telemetry.metrics import LABEL_SETS_MAX, OperationMetrics, Registry, Timing


async def _done() -> None:
    pass


async def _refused() -> None:
    raise InvalidBody("no")


async def _broken() -> None:
    raise KeyError


class Calls:
    """Requests of an operation that ends in the way that each of them is given."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._metrics = OperationMetrics(self.registry, "holdfast.lease.acquire", "Acquires.")

    async def call(self, namespace: str, end: Callable[[], Awaitable[object]]) -> None:
        async def handler(request: Request, body: None) -> Answer:
            request.operation = self._metrics, namespace, perf_counter()
            await end()
            return Answer(200)

        request = Request("POST", "/fine", b"", [], b"", None, None, "id-1")
        await execute(Route(path="/fine", methods=("POST",), handler=handler), request, Hooks())

    def count(self, namespace: str, result: str, count: int) -> None:
        name = "holdfast_lease_acquire_total"
        line = f'{name}{{namespace="{namespace}",result="{result}"}} {count}\n'
        assert line in self.registry.render().decode()

    def timed(self, count: int) -> None:
        assert f"holdfast_lease_acquire_duration_seconds_count {count}\n" in self.registry.render().decode()


async def test_a_call_counts_as_ok_as_the_code_of_its_error_or_as_failed() -> None:
    calls = Calls()

    await calls.call("default", _done)
    await calls.call("default", _done)
    await calls.call("default", _refused)
    await calls.call("other", _broken)

    calls.count("default", "ok", 2)
    calls.count("default", "invalid_body", 1)
    calls.count("other", "failed", 1)
    calls.timed(4)


async def test_a_call_whose_client_is_gone_counts_as_failed() -> None:
    calls = Calls()
    never = asyncio.Event()
    call = asyncio.create_task(calls.call("default", never.wait))
    await asyncio.sleep(0)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    calls.count("default", "failed", 1)


async def test_namespaces_that_clients_invent_share_one_count() -> None:
    calls = Calls()

    for number in range(LABEL_SETS_MAX + 20):
        await calls.call(f"n{number}", _done)

    calls.count("other", "other", 20)
    calls.timed(LABEL_SETS_MAX + 20)


def test_a_block_is_timed_by_how_it_ends() -> None:
    registry = Registry()
    timing = Timing(registry, "holdfast.txn.replay", "Replays.")

    with timing.observed():
        pass
    with pytest.raises(InvalidBody), timing.observed():
        raise InvalidBody("no")
    with pytest.raises(KeyError), timing.observed():
        raise KeyError

    text = registry.render().decode()
    for result in ("ok", "invalid_body", "failed"):
        assert f'holdfast_txn_replay_duration_seconds_count{{result="{result}"}} 1\n' in text
