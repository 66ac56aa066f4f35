"""The gates: what is counted, who is held back, who is refused, and who never is."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.express.execution import Hooks, execute
from holdfast.common.express.message import Answer, Request
from holdfast.common.express.route import Route
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Admission as Declared
from holdfast.common.express.traits import Group
from holdfast.gateway.admission.controller import Controller, Delay, Scope, State, halving, percentage
from holdfast.gateway.admission.gates import Admission, HeldTooLong, Throttled, Turn
from holdfast.gateway.admission.load_sample import HostFigures, InFlight, LoadSample
from holdfast.gateway.composition import declared_routers
from holdfast.gateway.settings import GatewaySettings

TRIGGERS = [
    halving("lag", Scope.LAG, lambda sample: sample.lag_s, soft=0.05, hard=0.1),
    percentage("cpu", lambda sample: sample.host.cpu_percent, soft=70, hard=85),
    halving("queue_consumer", Scope.CONSUMERS, lambda sample: sample.in_flight.consumers, soft=75, hard=100),
]
BUSY = LoadSample(host=HostFigures(cpu_percent=100))
LATE = LoadSample(lag_s=0.2)
CROWDED = LoadSample(in_flight=InFlight(consumers=100))
TURN_BUDGET_S = 0.05


async def _handle(request: Request, body: None) -> Answer:
    return Answer(200)


def _route(path: str) -> Route:
    return Route(path=path, methods=("POST",), handler=_handle)


def _request(path: str, *, query: bytes = b"", body: bytes = b"") -> Request:
    return Request("POST", path, query, [], body, None, None, "id-1")


def _admission(
    *,
    delay_s: float = 0.0,
    wait_s_max: float = 5.0,
    cpu_s: list[float] | None = None,
    slept_s: list[float] | None = None,
) -> Admission:
    """With `slept_s` no call really waits: the times are noted there. `cpu_s` is what the thread worked, first to last."""
    worked_s = cpu_s or [0.0]

    async def note(pause_s: float) -> None:
        assert slept_s is not None
        slept_s.append(pause_s)

    delays: dict[State, Delay] = {
        state: Delay(delay_s, 0.0) for state in State if state is not State.DISENGAGED
    }
    controller = Controller(TRIGGERS, delays, recovery_samples=5)
    admission = Admission(
        controller,
        wait_s_max=wait_s_max,
        turn_budget_s=TURN_BUDGET_S,
        sleep=asyncio.sleep if slept_s is None else note,
        cpu_s=lambda: worked_s.pop(0) if len(worked_s) > 1 else worked_s[0],
    )
    admission.guard(declared_routers(GatewaySettings.isolated(store="mem://")))
    return admission


def _put_under(admission: Admission, sample: LoadSample) -> None:
    admission.controller.observe(sample)
    admission.apply()


async def _answer(admission: Admission, path: str, *, query: bytes = b"", body: bytes = b"") -> Answer:
    hooks = Hooks(gates=admission.gates)
    answer = await execute(_route(path), _request(path, query=query, body=body), hooks)
    assert isinstance(answer, Answer)
    return answer


def _enter(admission: Admission, route: Route, request: Request) -> Awaitable[None] | None:
    """As `execute` does it."""
    gate = admission.gates.get(route.path)
    return None if gate is None else gate.enter(request)


async def test_while_nothing_is_wrong_everybody_is_let_in() -> None:
    admission = _admission()

    assert _enter(admission, _route("/v1/acquire"), _request("/v1/acquire")) is None


async def test_requests_are_counted_by_group_while_they_run() -> None:
    admission = _admission()
    for path in (
        "/v1/acquire",
        "/v1/update",
        "/v1/query",
        "/v1/queue/enqueue",
        "/v1/queue/ack",
        "/v1/describe",
    ):
        _enter(admission, _route(path), _request(path))
    begun = admission.in_flight()

    admission.gates["/v1/acquire"].left += 1

    assert begun == InFlight(producers=1, acks=1, locks=2, queries=1)
    assert admission.in_flight() == InFlight(producers=1, acks=1, locks=1, queries=1)


async def test_calls_of_queues_are_producers_consumers_or_acks_and_looks_are_none() -> None:
    admission = _admission()
    for path in ("enqueue", "enqueueBatch"):
        _enter(admission, _route(f"/v1/queue/{path}"), _request(""))
    for path in ("dequeue", "dequeueWithState", "dequeueBatch", "subscribe", "subscribeWithState"):
        _enter(admission, _route(f"/v1/queue/{path}"), _request(""))
    for path in ("ack", "ackBatch", "nack", "extend"):
        _enter(admission, _route(f"/v1/queue/{path}"), _request(""))
    for path in ("stats", "watch", "peek", "policy", "pause", "resume", "dlq/list", "dlq/redrive"):
        _enter(admission, _route(f"/v1/queue/{path}"), _request(""))

    assert admission.in_flight() == InFlight(producers=2, consumers=5, acks=4)


async def test_a_held_back_request_waits_and_goes_on() -> None:
    admission = _admission(delay_s=0.001)
    _put_under(admission, BUSY)

    answer = await _answer(admission, "/v1/release")

    assert answer.status == 200
    assert admission.gates["/v1/release"].held == 1


async def test_a_held_back_request_is_not_in_flight() -> None:
    admission = _admission(delay_s=60.0, wait_s_max=100.0)
    _put_under(admission, BUSY)

    task = asyncio.ensure_future(_answer(admission, "/v1/release"))
    await asyncio.sleep(0)
    while_held = admission.in_flight().total
    task.cancel()
    await asyncio.wait([task])

    assert admission.gates["/v1/release"].held == 1
    assert while_held == 0
    assert admission.in_flight().total == 0


async def test_a_delay_above_the_longest_wait_ends_in_a_refusal() -> None:
    admission = _admission(delay_s=7.0, wait_s_max=0.001)
    _put_under(admission, BUSY)

    answer = await _answer(admission, "/v1/acquire")

    assert answer.status == 429
    assert (
        answer.body == b'{"error":"throttled","detail":"perimeter defence engaged","retry_after_seconds":7}\n'
    )
    assert (b"retry-after", b"7") in answer.headers
    assert (b"x-lockd-qrf-state", b"engaged") in answer.headers


async def test_without_any_wait_the_refusal_comes_at_once() -> None:
    admission = _admission(delay_s=0.01, wait_s_max=0.0)
    _put_under(admission, BUSY)

    answer = await _answer(admission, "/v1/acquire")

    assert answer.status == 429
    assert (b"retry-after", b"1") in answer.headers
    assert admission.in_flight().total == 0


async def test_an_acquire_that_may_not_wait_so_long_is_told_to_wait() -> None:
    slept_s: list[float] = []
    admission = _admission(delay_s=3.0, slept_s=slept_s)
    _put_under(admission, BUSY)

    answer = await _answer(admission, "/v1/acquire", body=b'{"key":"a","owner":"o","block_seconds":1}')

    assert answer.status == HeldTooLong.status
    assert answer.body.startswith(b'{"error":"waiting"')
    assert slept_s == [1.0]


@pytest.mark.parametrize(
    "body", [b'{"block_seconds":3}', b'{"block_seconds":0}', b'{"block_seconds":-1}', b"{", b"[]"]
)
async def test_any_other_acquire_waits_for_the_delay(body: bytes) -> None:
    slept_s: list[float] = []
    admission = _admission(delay_s=3.0, slept_s=slept_s)
    _put_under(admission, BUSY)

    answer = await _answer(admission, "/v1/acquire", body=body)

    assert answer.status == 200
    assert slept_s == [3.0]


@pytest.mark.parametrize(
    ("body", "slept_s", "status"),
    [
        (b'{"queue":"q","owner":"o","wait_seconds":1}', 1.0, 409),
        (b'{"queue":"q","owner":"o","wait_seconds":5}', 3.0, 200),
        (b'{"queue":"q","owner":"o","wait_seconds":-1}', 3.0, 200),
        (b"", 3.0, 200),
        (b"{", 3.0, 200),
    ],
)
async def test_a_dequeue_waits_for_the_delay_if_it_may(body: bytes, slept_s: float, status: int) -> None:
    noted_s: list[float] = []
    admission = _admission(delay_s=3.0, slept_s=noted_s)
    _put_under(admission, CROWDED)

    answer = await _answer(admission, "/v1/queue/dequeue", body=body)

    assert (answer.status, noted_s) == (status, [slept_s])


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/readyz",
        "/version",
        "/metrics",
        "/docs",
        "/v1/describe",
        "/v1/txn/commit",
        "/v1/tc/leader",
    ],
)
async def test_some_paths_are_never_held_back(path: str) -> None:
    admission = _admission(delay_s=60.0, wait_s_max=0.0, cpu_s=[0.0])
    _put_under(admission, LoadSample(lag_s=9.0, host=HostFigures(cpu_percent=100)))

    answer = await _answer(admission, path)

    assert answer.status == 200


# A late event loop: new work of a turn that is over is refused, work that goes on never is.


async def test_a_turn_takes_its_first_new_work_and_refuses_what_comes_too_late() -> None:
    admission = _admission(cpu_s=[0.0, 0.06, 0.06, 0.07])
    _put_under(admission, LATE)

    answers = [await _answer(admission, "/v1/acquire") for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 429, 429]
    assert admission.gates["/v1/acquire"].refused == 2
    assert admission.in_flight().total == 0
    assert admission.take_longest_turn_s() == 0.07
    assert admission.take_longest_turn_s() == 0


async def test_a_flooded_turn_answers_its_refusals_in_the_next_one() -> None:
    admission = _admission(cpu_s=[0.0, 0.0, 0.3])
    _put_under(admission, LATE)
    route, request = _route("/v1/acquire"), _request("/v1/acquire")
    _enter(admission, route, request)  # The first of the turn.

    pause = _enter(admission, route, request)

    assert pause is not None
    with pytest.raises(Throttled):
        await pause


async def test_a_turn_with_time_left_takes_all_new_work() -> None:
    admission = _admission(cpu_s=[0.0, 0.01, 0.02, 0.03])
    _put_under(admission, LATE)

    answers = [await _answer(admission, "/v1/acquire") for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 200]


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/v1/get", b"key=a&public=1", 429),
        ("/v1/get", b"key=a", 200),
        ("/v1/query", b"", 429),
        ("/v1/queue/enqueue", b"", 429),
        ("/v1/queue/dequeue", b"", 429),
        ("/v1/queue/ack", b"", 200),
        ("/v1/keepalive", b"", 200),
        ("/v1/keepalive/batch", b"", 200),
        ("/v1/update", b"", 200),
        ("/v1/release", b"", 200),
    ],
)
async def test_only_what_begins_work_is_refused(path: str, query: bytes, status: int) -> None:
    admission = _admission(cpu_s=[0.0, 0.06, 0.06])
    _put_under(admission, LATE)
    await _answer(admission, "/v1/acquire")  # The first of the turn.

    answer = await _answer(admission, path, query=query)

    assert answer.status == status


async def test_the_gates_open_again_when_the_pressure_is_gone() -> None:
    admission = _admission(cpu_s=[0.0])
    _put_under(admission, LATE)

    for _ in range(10):
        _put_under(admission, LoadSample())

    assert all(gate.is_open for gate in admission.gates.values())


def test_a_turn_begins_anew_when_the_loop_looks_for_requests() -> None:
    now_s = 0.0
    called: list[Callable[[], None]] = []
    turn = Turn(called.append, lambda: now_s)
    turn.is_over(0.05)
    now_s = 0.06
    was_over = turn.is_over(0.05)

    called.pop()()
    takes_the_first = not turn.is_over(0.05)
    now_s = 0.1
    has_time_left = not turn.is_over(0.05)

    assert was_over
    assert takes_the_first
    assert has_time_left
    assert len(called) == 1  # One mark for a turn, however many requests it has.


def test_a_loop_without_new_work_is_left_alone_and_its_other_work_does_not_count() -> None:
    now_s = 0.0
    called: list[Callable[[], None]] = []
    turn = Turn(called.append, lambda: now_s)
    turn.is_over(0.05)

    called.pop()()
    called.pop()()
    was_left_alone = not called
    now_s = 9.0
    answers = [turn.is_over(0.05), turn.is_over(0.05)]

    assert was_left_alone
    assert answers == [False, False]


def test_now_and_then_a_request_notices_that_the_sample_is_overdue() -> None:
    admission = _admission()
    noticed: list[bool] = []
    admission.on_overdue = lambda: noticed.append(True)

    for _ in range(128):
        _enter(admission, _route("/v1/get"), _request("/v1/get"))
    before = len(noticed)
    admission.overdue_s = 0.0
    for _ in range(128):
        _enter(admission, _route("/v1/get"), _request("/v1/get"))

    assert before == 0
    assert len(noticed) == 2


def test_the_docs_name_the_refusal_where_it_can_come() -> None:
    router = ExpressRouter()
    router.add("/v9/take", _handle, admission=Declared(Group.LOCK))
    router.add("/v9/look", _handle)

    _admission().guard([router])

    assert [Throttled in route.errors for route in router.routes] == [True, False]


def test_the_routes_of_one_path_are_admitted_alike() -> None:
    router = ExpressRouter()
    router.add("/v9/take", _handle, admission=Declared(Group.LOCK))
    router.add("/v9/take", _handle, methods=("GET",), admission=Declared(Group.QUERY))

    with pytest.raises(ValueError, match="admitted alike"):
        _admission().guard([router])


def test_a_refusal_names_at_least_a_second() -> None:
    refusal: HoldfastError = Throttled(State.SOFT_ARM, retry_after_s=0.01)

    assert refusal.retry_after_s == 1.0
    assert refusal.headers() == {"X-Lockd-QRF-State": "soft_arm"}
