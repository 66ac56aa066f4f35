"""What is attached to a request: admission, metrics, tracing; each sees every outcome."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.express.execution import Gate, Hooks, HttpMetrics, execute
from holdfast.common.express.message import Answer, Request
from holdfast.common.express.route import Route, compile_table
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.telemetry.tracing import Span, Tracer


class Throttled(HoldfastError):
    """Too much at once."""

    code, status = "throttled", 429

    def headers(self) -> dict[str, str]:
        return {"X-Lockd-QRF-State": "engaged"}


async def _fine(request: Request, body: None) -> Answer:
    return Answer(200, b"fine")


ROUTE = Route(path="/fine", methods=("POST",), handler=_fine)


def _request() -> Request:
    return Request("POST", "/fine", b"", [], b"", None, None, "id-1")


class ClosedGate(Gate):
    """Asks `look` for every request."""

    def __init__(self, look: Callable[[Request], Awaitable[None] | None]) -> None:
        super().__init__()
        self.is_open = False
        self._look = look

    def look(self, request: Request) -> Awaitable[None] | None:
        return self._look(request)


async def test_admission_may_refuse() -> None:
    def look(request: Request) -> Awaitable[None] | None:
        raise Throttled("perimeter defence engaged", retry_after_s=0.3)

    gate = ClosedGate(look)

    answer = await execute(ROUTE, _request(), Hooks(gates={ROUTE.path: gate}))

    assert isinstance(answer, Answer)
    assert answer.status == 429
    assert (
        answer.body == b'{"error":"throttled","detail":"perimeter defence engaged","retry_after_seconds":1}\n'
    )
    assert (b"x-lockd-qrf-state", b"engaged") in answer.headers
    assert (gate.entered, gate.left) == (1, 1)


async def test_admission_may_delay() -> None:
    is_over = asyncio.Event()

    async def wait() -> None:
        await is_over.wait()

    gate = ClosedGate(lambda request: wait())
    hooks = Hooks(gates={ROUTE.path: gate})
    task = asyncio.ensure_future(execute(ROUTE, _request(), hooks))
    await asyncio.sleep(0)
    assert not task.done()
    assert (gate.entered, gate.left) == (1, 0)

    is_over.set()

    answer = await task
    assert isinstance(answer, Answer)
    assert answer.body == b"fine"
    assert (gate.entered, gate.left) == (1, 1)


async def test_metrics_count_answers_defects_and_clients_that_left() -> None:
    registry = Registry()
    metrics = HttpMetrics(registry)
    hooks = Hooks(metrics=metrics)
    entered = asyncio.Event()

    async def stuck(request: Request, body: None) -> Answer:
        entered.set()
        await asyncio.Event().wait()
        return Answer(200)

    async def broken(request: Request, body: None) -> Answer:
        raise RuntimeError("defect")

    await execute(ROUTE, _request(), hooks)
    await execute(Route(path="/broken", methods=("POST",), handler=broken), _request(), hooks)
    task = asyncio.ensure_future(
        execute(Route(path="/stuck", methods=("POST",), handler=stuck), _request(), hooks)
    )
    await entered.wait()
    assert metrics.in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    text = registry.render().decode()
    assert metrics.in_flight == 0
    for route, status in (("/fine", 200), ("/broken", 500), ("/stuck", 499)):
        assert f'holdfast_http_requests_total{{route="{route}",method="POST",status="{status}"}} 1' in text


async def test_a_span_ends_with_the_status_and_the_code_of_the_error() -> None:
    async def busy(request: Request, body: None) -> Answer:
        raise Throttled("not now")

    ended: list[Span] = []
    tracer = Tracer(1, ended.append)

    await execute(ROUTE, _request(), Hooks(tracer=tracer))
    await execute(Route(path="/busy", methods=("POST",), handler=busy), _request(), Hooks(tracer=tracer))

    assert [(span.route, span.status, span.error_code) for span in ended] == [
        ("/fine", 200, None),
        ("/busy", 429, "throttled"),
    ]


async def test_a_request_that_is_traced_already_gets_no_second_span() -> None:
    ended: list[Span] = []
    tracer = Tracer(1, ended.append)
    span = tracer.begin(_request(), "/fine")

    await execute(ROUTE, _request(), Hooks(tracer=tracer), None, span)

    assert ended == [span]


def test_routes_are_exact_and_declared_once() -> None:
    with pytest.raises(ValueError, match="exact"):
        Route(path="/v1/{key}", methods=("GET",), handler=_fine)
    with pytest.raises(ValueError, match="capitals"):
        Route(path="/v1/get", methods=("get",), handler=_fine)
    with pytest.raises(ValueError, match="twice"):
        compile_table([ROUTE, ROUTE])
