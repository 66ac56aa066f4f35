"""The one way a hot request is run, by the lane and by ASGI: admit, validate, handle, turn errors into answers.

On the lane a connection has one task for all its requests, its worker's, which is rarely woken: making a task, or scheduling one, costs as
much as the rest of a small request. So the lane drives the coroutine of a request itself. The first step runs at once, the
later ones as callbacks of the futures that it waits for, each entered as the connection's task and in its context:
`current_task`, timeouts, task groups and context variables see that task from the first line on. The requests of a connection,
and of those that get its worker after it, share its context: a handler that sets a context variable has to reset it.
"""

import asyncio
import contextvars
import time
import types
from asyncio.tasks import _enter_task, _leave_task  # Documented for those who extend asyncio.
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from holdfast.common.dialect import Dialects
from holdfast.common.errors import HoldfastError, PermissionMissing
from holdfast.common.express.message import AnyAnswer, Request, StreamAnswer
from holdfast.common.express.route import Route
from holdfast.common.express.stream import begin
from holdfast.common.logging import Logger, current_cid, get_logger
from holdfast.common.logging import output as log_output
from holdfast.common.telemetry.metrics import FAILED, OK, Counter, Histogram, OperationMetrics, Registry
from holdfast.common.telemetry.tracing import Span, Tracer
from holdfast.common.wire_errors import ENVELOPE, internal_error, invalid_body

STATUS_CLIENT_GONE: Final = 499
"""Counted, never sent: the client hung up before there was an answer."""

_LOOK_MASK: Final = 63  # One of so many requests of an open gate looks nevertheless.

_log = get_logger("api.http.router")


Identify = Callable[[Route, Request], None]
"""Finds out or looks at the principal of a request; refuses it by raising a HoldfastError."""

Check = Callable[[], None]
"""Whether the process may serve at all now; refuses every request by raising a HoldfastError while it may not."""


class HttpMetrics:
    """Requests by route, method and status, their duration, and how many run right now."""

    __slots__ = ("_children", "_duration", "_requests", "in_flight")

    def __init__(self, registry: Registry) -> None:
        self.in_flight = 0
        self._requests = registry.counter(
            "holdfast.http.requests", "HTTP requests by route and status.", ("route", "method", "status")
        )
        self._duration = registry.histogram(
            "holdfast.http.request.duration", "From a complete request to its answer.", ("route",), unit="ms"
        )
        registry.gauge(
            "holdfast.http.in_flight",
            "Requests of express routes being served.",
            callback=lambda: float(self.in_flight),
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count one answered request; `route` and `method` come from our own routes, never from the client."""
        children = self._children.get((route, method, status))
        if children is None:
            children = self._requests.labels(route, method, str(status)), self._duration.labels(route)
            self._children[route, method, status] = children
        children[0].value += 1
        _observe(children[1], duration_s * 1000)


def _observe(histogram: Histogram, value: float) -> None:
    """As its method does: every request comes by here, and a step less into another module is felt."""
    histogram.counts[bisect_left(histogram.bounds, value)] += 1
    histogram.sum += value


def count_operation(
    metrics: OperationMetrics, namespace: str, began_s: float, result: str, ended_s: float
) -> None:
    """Count the operation that a request was."""
    calls = metrics.calls.known.get((namespace, result))
    if calls is None:
        calls = metrics.calls.labels(namespace, result)
    calls.value += 1
    _observe(metrics.duration, (ended_s - began_s) * 1000)


class Gate:
    """Where the requests of one path come in. An open gate is passed without asking, but for one request of many: a loop
    that is flooded may not get to its timers, and then that request looks at the clock. Counts only grow."""

    __slots__ = ("entered", "is_open", "left")

    def __init__(self) -> None:
        self.is_open = True
        self.entered = 0
        self.left = 0

    def enter(self, request: Request) -> Awaitable[None] | None:
        """Let a request in (None), delay it (an awaitable), or refuse it (a HoldfastError); then it counts as entered too."""
        self.entered += 1
        return None if self.is_open and self.entered & _LOOK_MASK else self.look(request)

    def look(self, request: Request) -> Awaitable[None] | None:
        raise NotImplementedError


@dataclass(slots=True)
class Hooks:
    """The attachments of one app."""

    check: Check | None = None
    identify: Identify | None = None
    gates: Mapping[str, Gate] = field(default_factory=dict[str, Gate])
    """By path; where there is none, every request is let in."""
    metrics: HttpMetrics | None = None
    tracer: Tracer | None = None
    dialects: Dialects = field(default_factory=lambda: Dialects(ENVELOPE))
    """For errors that are older than the choice of a route."""
    wall_s: Callable[[], float] = time.time
    """What `Date` says: the time by which the ends in the answers are judged."""


def in_turn(first: Identify | None, second: Identify) -> Identify:
    """Both checks, the second when the first let the request pass."""
    if first is None:
        return second

    def identify(route: Route, request: Request) -> None:
        first(route, request)
        second(route, request)

    return identify


def identify_by_protocol(route: Route, request: Request) -> None:
    """Take the principal from the proof that the protocol of a route asks for; the certificate of the connection stays."""
    prove = route.traits.identify
    if prove is None:
        return
    principal = prove(request)
    if principal.certificate is None:
        principal = replace(principal, certificate=request.principal.certificate)
    if not principal.may(route.traits.permission):
        raise PermissionMissing("what the caller proved to be does not allow this")
    request.principal = principal


Result = TypeVar("Result")


def _ignore() -> None:
    pass


def _ignore_result(result: object) -> None:
    pass


class Worker(Generic[Result]):
    """Runs one piece of work at a time; the caller with the next one waits for the end of the last.

    As long as the work waits for futures, callbacks of these drive it, and its task sleeps: it is only what `current_task` tells.
    The task itself drives the work once it is cancelled, and work that waits for anything but a future.
    """

    __slots__ = (
        "_context",
        "_handed",
        "_has_started",
        "_is_free",
        "_is_telling",
        "_loop",
        "_next",
        "_on_cancelled",
        "_on_done",
        "_outer",
        "_task",
        "_waiting",
        "_wake",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._on_done: Callable[[Result], None] = _ignore_result
        self._on_cancelled: Callable[[], None] = _ignore
        self._loop = loop
        self._context = contextvars.copy_context()
        self._outer = self._context.copy()  # Of the callbacks, which enter the other one for the work.
        self._task: asyncio.Task[None] | None = None
        self._has_started = False
        self._is_free = True  # The task runs no work itself.
        self._is_telling = False
        self._next: Coroutine[Any, None, Result] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._waiting: tuple[Coroutine[Any, None, Result], asyncio.Future[Any]] | None = None
        self._handed: tuple[Coroutine[Any, None, Result], Any, bool] | None = None

    def serve(self, on_done: Callable[[Result], None], on_cancelled: Callable[[], None]) -> None:
        """Set the callbacks that are told of the work from now on."""
        self._on_done = on_done
        self._on_cancelled = on_cancelled

    def leave(self) -> None:
        """An idle worker has no connection to tell, until it serves another one."""
        self._on_done = _ignore_result
        self._on_cancelled = _ignore

    @property
    def is_idle(self) -> bool:
        """Whether it has no work and may get some from another one."""
        task = self._task
        return task is None or (
            self._is_free
            and self._waiting is None
            and self._handed is None
            and self._next is None
            and not self._is_telling
            and not task.done()
            and not task.cancelling()
        )

    def run(self, work: Coroutine[Any, None, Result]) -> None:
        """Run work: at once where no other task is running, as when a protocol gets its bytes, else soon."""
        task = self._task
        if task is None:
            task = self._task = self._loop.create_task(self._run_handed(), context=self._context)
        if self._is_telling:
            self._next = work  # `_step` goes on with it: a long line of work must not become a deep stack.
        elif self._is_free and not task.cancelling():
            self._step(task, work, False)
        else:
            self._hand_over(work, None, False)

    def _step(self, task: asyncio.Task[None], work: Coroutine[Any, None, Result], has_begun: bool) -> None:
        """Let the work run until it waits or is done, in the name of the task; then that which its end has brought."""
        while True:
            try:
                _enter_task(self._loop, task)
            except RuntimeError:  # Another task is running.
                self._hand_over(work, None, has_begun)
                return
            try:
                waits_for = self._context.run(work.send, None)
            except StopIteration as stop:
                result = stop.value
            except asyncio.CancelledError:
                self._on_cancelled()
                return
            except Exception as error:  # noqa: BLE001 - the edge of the work, as in a task: its connection must not hang
                self._failed(error)
                return
            else:
                if isinstance(waits_for, asyncio.Future):
                    waits_for._asyncio_future_blocking = False  # As a task says that it has begun to wait.
                    self._waiting = work, waits_for
                    waits_for.add_done_callback(self._go_on, context=self._outer)
                else:
                    self._hand_over(work, waits_for, True)
                return
            finally:
                _leave_task(self._loop, task)
            self._is_telling = True
            try:
                self._on_done(result)
            finally:
                self._is_telling = False
            if self._next is None:
                return
            work, self._next, has_begun = self._next, None, False
            if task.cancelling():
                self._hand_over(work, None, False)
                return

    def _go_on(self, future: asyncio.Future[Any]) -> None:
        waiting, task = self._waiting, self._task
        if waiting is None or waiting[1] is not future or task is None or task.cancelling():
            return  # The task goes on with it.
        self._waiting = None
        self._step(task, waiting[0], True)

    def cancel(self) -> None:
        """Cancel what runs, and be of no further use."""
        if self._task is None:
            return
        if self._has_started:
            self._task.cancel()
        elif self._handed is None or self._handed[2]:
            self._loop.call_soon(self._task.cancel)  # A task that has not started would not notice.
        else:
            self._task.cancel()
            self._handed[0].close()
            self._handed = None
            self._on_cancelled()

    def _hand_over(self, work: Coroutine[Any, None, Result], waits_for: Any, has_begun: bool) -> None:
        self._handed = work, waits_for, has_begun
        self._is_free = False
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _failed(self, error: Exception) -> None:
        """The work left by an error that it should have turned into an answer: there will be none."""
        _log.error("http.worker.failed", exception=error)
        self._on_cancelled()

    async def _run_handed(self) -> None:
        self._has_started = True
        try:
            while True:
                error: asyncio.CancelledError | None = None
                if self._handed is None:
                    error = await self._wait_for_work()
                assert self._handed is not None
                work, waits_for, has_begun = self._handed
                self._handed = None
                if has_begun:
                    result = await _resume(work, waits_for, error)
                elif error is None:
                    result = await work
                else:
                    work.close()
                    raise error
                self._on_done(result)
        except asyncio.CancelledError:
            self._on_cancelled()
            raise
        except Exception as failure:  # noqa: BLE001 - as above
            self._failed(failure)
        finally:
            if self._handed is not None:
                self._handed[0].close()

    async def _wait_for_work(self) -> asyncio.CancelledError | None:
        """Wait; a cancellation that comes while there is work is meant for that work."""
        self._wake = self._loop.create_future()
        self._is_free = True
        try:
            await self._wake
        except asyncio.CancelledError as error:
            if self._waiting is not None:
                self._handed = *self._waiting, True
                self._waiting = None
            if self._handed is None:
                raise
            return error
        finally:
            self._is_free = False
            self._wake = None
        return None


@types.coroutine
def _resume(
    work: Coroutine[Any, None, Result], waits_for: Any, error: BaseException | None
) -> Generator[Any, Any, Result]:
    """Go on with work that was begun elsewhere and waits for a future; `error` cancels it first, as a task does: what it
    waits for is cancelled, and only if that is over the work itself."""
    if isinstance(waits_for, asyncio.Future):
        waits_for._asyncio_future_blocking = True
        if error is not None and waits_for.cancel(*error.args[:1]):
            error = None
    while True:
        value = None
        if error is None:
            try:
                value = yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - every kind is passed on into the work
                error = thrown
        try:
            waits_for = work.send(value) if error is None else work.throw(error)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        error = None


async def execute(
    route: Route,
    request: Request,
    hooks: Hooks,
    chunks: AsyncIterator[bytes] | None = None,
    span: Span | None = None,
) -> AnyAnswer:
    """Run the handler of a route; every error becomes an answer, except the client hanging up.

    With `chunks`, the body as a stream, the route's `stream_handler` runs. A streamed answer has its first chunk.
    `span` is that of a request that is traced already.
    One function on purpose: each further coroutine in between would cost every hot request.
    """
    current_cid.set(request.correlation_id)
    metrics = hooks.metrics
    if span is None and hooks.tracer is not None:
        span = hooks.tracer.begin(request, route.path)
    status = STATUS_CLIENT_GONE
    code: str | None = None
    result = FAILED  # Also of a client that hung up: it got no answer.
    started_s = 0.0
    gate: Gate | None = None
    if metrics is not None:
        started_s = perf_counter()
        metrics.in_flight += 1
    try:
        if hooks.check is not None:
            hooks.check()
        if hooks.identify is not None:
            hooks.identify(route, request)
        gate = hooks.gates.get(route.path)
        if gate is not None:
            pause = gate.enter(request)
            if pause is not None:
                await pause
        if chunks is None:
            parsed: BaseModel | None = None
            if not route.is_parsed_by_handler and (request.body or not route.is_body_optional):
                parsed = validated(route, request.body)
            answer = await route.handler(request, parsed)
        else:
            assert route.stream_handler is not None
            answer = await route.stream_handler(request, chunks)
        if isinstance(answer, StreamAnswer):
            await begin(answer)
        status = answer.status
        result = OK
    except HoldfastError as error:
        answer = route.traits.dialect.answer(error)
        status = answer.status
        code = result = error.code
    except Exception as error:  # noqa: BLE001 - the edge of the request's task: a defect is logged and hidden
        _log.error("http.handler.failed", method=request.method, path=request.path, exception=error)
        answer = route.traits.dialect.answer(internal_error())
        status = answer.status
        code = HoldfastError.code
    finally:
        if gate is not None:
            gate.left += 1
        if metrics is not None:
            metrics.in_flight -= 1
            duration_s = perf_counter() - started_s
            metrics.observe(route.path, request.method, status, duration_s)
            if log_output.is_debug:
                log_request(route.path, request.method, request.path, status, duration_s)
        if request.operation is not None:
            count_operation(*request.operation, result, perf_counter())
        if span is not None:
            span.end(status, code)
    return answer


def validated(route: Route, body: bytes) -> BaseModel | None:
    """The body as the route's model, None when it takes none; also for a handler that has other things to refuse first."""
    validate = route.validate_json
    if validate is None:
        return None
    try:
        return validate(body)
    except ValidationError as error:
        raise invalid_body(error) from error


@lru_cache(maxsize=1024)
def operation_of(route: str) -> str:
    """`queue.dequeue_with_state` for `/v1/queue/dequeueWithState`; `other` for what no route takes."""
    words = route.strip("/").removeprefix("v1/").replace("/", ".") or "other"
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words)


@lru_cache(maxsize=1024)
def _logger_of(route: str) -> Logger:
    return get_logger(f"api.http.router.{operation_of(route)}")


def log_request(route: str, method: str, path: str, status: int, duration_s: float) -> None:
    """For callers that have asked whether debug lines are written."""
    _logger_of(route).debug(
        "http.request.done", method=method, path=path, status=status, duration_ms=round(duration_s * 1000, 3)
    )
