"""Work that outlives its client: bounded, repeated with pauses, waited for at shutdown and no longer."""

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.common.express.message import Answer, Request
from holdfast.common.express.undo import Repeat
from holdfast.common.serving.drain import Drain
from holdfast.common.telemetry.metrics import Counter, Registry
from holdfast.common.upstream.errors import UpstreamBroken, UpstreamError, UpstreamUnavailable
from holdfast.common.upstream.limits import UpstreamLimits
from holdfast.common.upstream.port import UpstreamAnswer
from holdfast.gateway.proxy import repetition, unfinished
from holdfast.gateway.proxy.proxied_route import ANSWER_S_MAX
from holdfast.gateway.proxy.repetition import Repetition
from holdfast.gateway.proxy.unfinished import Unfinished, persist
from holdfast.storage.options import StoreOptions
from tests.unit.test_tree import ROOT

OK = UpstreamAnswer(200, [], b"{}")
GONE = UpstreamAnswer(404, [], b'{"error":"not_found"}')
FAILED = UpstreamAnswer(502, [], b"{}")
REQUEST = Request("POST", "/v1/release", b"", [], b"{}", None, None, "id")


class Outcomes:
    """A call that ends as told, one time after the other."""

    def __init__(self, *outcomes: UpstreamAnswer | UpstreamError) -> None:
        self._outcomes: Iterator[UpstreamAnswer | UpstreamError] = iter(outcomes)
        self.calls = 0

    async def __call__(self) -> UpstreamAnswer:
        self.calls += 1
        outcome = next(self._outcomes)
        if isinstance(outcome, UpstreamError):
            raise outcome
        return outcome


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "_PAUSE_S", 0.001)


def broken() -> UpstreamBroken:
    return UpstreamBroken("it died")


def of(work: Unfinished, repeat: Repeat | None = None) -> Repetition:
    family = Registry().counter("holdfast.test", "Test.", ("service", "outcome"))
    return Repetition(repeat or Repeat(), "leases", work, family)


async def test_a_call_is_repeated_until_it_is_answered() -> None:
    call = Outcomes(broken(), FAILED, UpstreamUnavailable("away"), OK)

    assert await persist(call) is OK
    assert call.calls == 4


async def test_a_call_that_is_never_answered_ends_with_its_last_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "UNFINISHED_S_MAX", 0.0)

    assert await persist(Outcomes(FAILED)) is FAILED
    with pytest.raises(UpstreamBroken):
        await persist(Outcomes(broken()))


async def test_there_is_a_bound_on_unfinished_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "UNFINISHED_MAX", 1)
    work = Unfinished(Drain(), Registry())
    async with work.running():
        first = work.begin(asyncio.sleep(0, "done"))
        assert work.begin(asyncio.sleep(0)) is None

    assert first is not None
    assert first.result() == "done"


async def test_a_shutdown_waits_for_what_ends_soon_and_cancels_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "_CLOSE_S_MIN", 0.05)
    work = Unfinished(Drain(), Registry())
    async with work.running():
        short = work.begin(asyncio.sleep(0.001, "done"))
        endless = work.begin(asyncio.Event().wait())

    assert short is not None
    assert short.result() == "done"
    assert endless is not None
    assert endless.cancelled()


async def test_a_client_is_told_how_its_call_failed_while_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repetition, "CLIENT_WAITS_S", 0.0)
    work = Unfinished(Drain(), Registry())
    call = Outcomes(broken(), broken(), OK)
    async with work.running():
        with pytest.raises(UpstreamBroken) as told:
            await of(work).answer(REQUEST, call)

    assert told.value.retry_after_s == 1
    assert call.calls == 3


async def test_a_failure_that_the_service_tells_is_repeated_too() -> None:
    work = Unfinished(Drain(), Registry())
    async with work.running():
        assert await of(work).answer(REQUEST, Outcomes(FAILED, OK)) is OK


async def test_a_client_that_hangs_up_does_not_end_the_call() -> None:
    work = Unfinished(Drain(), Registry())
    calls = 0

    async def call() -> UpstreamAnswer:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        return OK

    async with work.running():
        task = asyncio.ensure_future(of(work).answer(REQUEST, call))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert calls == 2


@pytest.mark.parametrize(
    ("failure", "status"),
    [(broken(), 200), (FAILED, 200), (UpstreamUnavailable("away"), 404)],
    ids=["broken", "failed", "unsent"],
)
async def test_an_answer_to_a_repeated_call_is_that_of_the_first_if_it_may_have_run(
    failure: UpstreamAnswer | UpstreamError, status: int
) -> None:
    def first(request: Request, status: int, body: bytes) -> Answer | None:
        return Answer(200) if status == 404 else None

    work = Unfinished(Drain(), Registry())
    async with work.running():
        answer = await of(work, Repeat(first)).answer(REQUEST, Outcomes(failure, GONE))

    assert answer.status == status


async def test_what_was_repeated_is_counted_by_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Registry().counter("holdfast.test", "Test.", ("service", "outcome"))
    work = Unfinished(Drain(), Registry())
    async with work.running():
        repeated = Repetition(Repeat(), "leases", work, family)
        await repeated.answer(REQUEST, Outcomes(FAILED, OK))
        monkeypatch.setattr(unfinished, "UNFINISHED_S_MAX", 0.0)
        await repeated.answer(REQUEST, Outcomes(FAILED, FAILED))

    assert [family.labels("leases", outcome).value for outcome in ("answered", "failed")] == [1, 1]


def test_the_page_about_split_planes_tells_the_limits() -> None:
    page = " ".join((ROOT / "docs/how-to/split.md").read_text("utf-8").split())

    assert f"for up to {unfinished.UNFINISHED_S_MAX:.0f} s." in page
    assert f"The client waits for {repetition.CLIENT_WAITS_S:.0f} s of that" in page
    assert f"At most {unfinished.UNFINISHED_MAX:,} such calls" in page
    assert f"took {ANSWER_S_MAX:.0f} s" in page
    assert (UpstreamLimits().attempts_max, "up to three times" in page) == (4, True)
    assert (
        StoreOptions().postgres_poll_interval_s,
        "at most a second, the time of the safety poll" in page,
    ) == (
        1,
        True,
    )


async def test_too_much_unfinished_work_is_counted_and_the_client_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "UNFINISHED_MAX", 0)
    family = Registry().counter("holdfast.test", "Test.", ("service", "outcome"))
    repeated = Repetition(Repeat(), "leases", Unfinished(Drain(), Registry()), family)

    with pytest.raises(UpstreamBroken):
        await repeated.answer(REQUEST, Outcomes(broken()))

    refused: Counter = family.labels("leases", "refused")
    assert refused.value == 1


class Chunks:
    """A large answer, which has to be let go of."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = iter(pieces)
        self.is_closed = False

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            return next(self._pieces)
        except StopIteration:
            raise StopAsyncIteration from None

    def call_off(self) -> None:
        raise AssertionError("that was not asked for")

    async def aclose(self) -> None:
        self.is_closed = True


async def test_a_large_answer_to_a_repeated_call_is_read_and_judged_whole() -> None:
    chunks = Chunks(b'{"error":', b'"not_found"}')

    def first_answer(request: Request, status: int, body: bytes) -> Answer | None:
        return Answer(200, body) if status == 404 else None

    work = Unfinished(Drain(), Registry())
    async with work.running():
        call = Outcomes(broken(), UpstreamAnswer(404, [], stream=chunks))
        told = await of(work, Repeat(first_answer)).answer(REQUEST, call)

    assert isinstance(told, Answer)
    assert (told.status, told.body) == (200, GONE.body)
    assert chunks.is_closed


async def test_answers_that_are_not_read_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "ANSWER_BYTES_MAX", 3)
    failed, endless = Chunks(b"502"), Chunks(b"1234", b"5678")
    call = Outcomes(UpstreamAnswer(502, [], stream=failed), UpstreamAnswer(200, [], stream=endless), OK)

    assert await persist(call) is OK
    assert (failed.is_closed, endless.is_closed) == (True, True)


async def test_there_is_a_bound_on_the_bytes_of_unfinished_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "UNFINISHED_BYTES_MAX", 10)
    work = Unfinished(Drain(), Registry())
    async with work.running():
        first = work.begin(asyncio.sleep(0, "done"), 8)
        assert work.begin(asyncio.sleep(0), 8) is None
        assert first is not None
        await first
        await asyncio.sleep(0)
        assert work.begin(asyncio.sleep(0), 8) is not None
