"""acquire_for_update: the handshake is tried again, the handler runs once, and everything that failed is told."""

import asyncio

import pytest

from holdfast.client import AsyncClient, Client, LeaseLost, Session, State, Throttled, TransportFailed
from holdfast.client.aio.session import Session as AsyncSession
from holdfast.client.errors import ApiError, CasMismatch
from holdfast.client.options import ClientOptions
from holdfast.client.session.acquisition import Acquisition
from holdfast.client.session.handshake import HANDSHAKE_S_MAX, Handshake
from holdfast.client.wire.call import Answer
from tests.infra.fake_plane import FakePlane, reply
from tests.infra.player import Player, answer

WAIT_S = 10.0


def granted() -> Answer:
    return answer(
        200,
        namespace="default",
        key="k",
        lease_id="l",
        txn_id="t",
        fencing_token=1,
        expires_at_unix=4_000_000_000,
    )


def shaking(player: Player, *, failure_retries: int = 5) -> Handshake:
    wanted = Acquisition(namespace="default", key="k", owner="me", correlation_id="", block_s=0.0, retries=0)
    return Handshake(player.channel, ClientOptions(), wanted, failure_retries=failure_retries)


def test_a_get_that_fails_gives_the_lease_back_and_begins_anew() -> None:
    lost, released = answer(403, error="lease_required"), answer(200, released=True)
    player = Player([granted(), lost, released, granted(), Answer(200, {}, b"{}")])

    state = player.play(shaking(player).run())

    assert state is not None
    paths = [call.path for call in player.sent]
    assert paths == ["/v1/acquire", "/v1/get", "/v1/release", "/v1/acquire", "/v1/get"]
    assert player.pauses_s == pytest.approx([1.0], abs=0.1)


def test_the_budget_of_the_handshake_is_five_retries_and_a_larger_retry_after_wins() -> None:
    throttled = [answer(429, {"retry-after": "30"}, error="throttled") for _ in range(6)]
    player = Player([*throttled])

    with pytest.raises(Throttled):
        player.play(shaking(player).run())

    assert player.pauses_s == [30.0] * 5


def test_without_a_budget_the_handshake_ends_with_its_time() -> None:
    player = Player([TransportFailed("down") for _ in range(1000)], seconds_per_call=10.0)

    with pytest.raises(TransportFailed):
        player.play(shaking(player, failure_retries=-1).run())

    assert player.clock.monotonic_s() - 1000.0 >= HANDSHAKE_S_MAX


@pytest.mark.parametrize("status", [400, 409])
def test_what_does_not_pass_ends_the_handshake(status: int) -> None:
    player = Player([answer(status, error="no")])

    with pytest.raises(ApiError):
        player.play(shaking(player).run())


def test_the_handler_gets_session_and_state_and_its_result_is_given(plane: FakePlane, url: str) -> None:
    def handler(session: Session, state: State | None) -> int:
        count = 0 if state is None else state.json()
        session.save(count + 1)
        return count + 1

    with Client(url) as client:
        results = [client.acquire_for_update("n", handler) for _ in range(3)]

    assert results == [1, 2, 3]
    assert plane.keys["n"].document == b"3"


@pytest.mark.parametrize(("on_error", "document"), [("rollback", None), ("commit", b"1")])
def test_a_handler_that_fails_rolls_back_unless_told_otherwise(
    plane: FakePlane, url: str, on_error: str, document: bytes | None
) -> None:
    def handler(session: Session, state: State | None) -> None:
        session.save(1)
        raise KeyError("n")

    with Client(url) as client, pytest.raises(KeyError):
        client.acquire_for_update("n", handler, on_error="commit" if on_error == "commit" else "rollback")

    assert plane.keys["n"].document == document
    assert plane.keys["n"].holder is None


async def test_after_the_handler_started_nothing_is_tried_again(plane: FakePlane, url: str) -> None:
    calls: list[int] = []

    async def handler(session: AsyncSession, state: State | None) -> None:
        calls.append(1)
        plane.then("/v1/update", reply(409, error="version_conflict"))
        await session.save(1)

    async with AsyncClient(url) as client:
        with pytest.raises(CasMismatch):
            await client.acquire_for_update("n", handler)

    assert calls == [1]


async def test_a_lost_lease_cancels_the_handler(plane: FakePlane, url: str) -> None:
    was_cancelled = asyncio.Event()

    async def handler(session: AsyncSession, state: State | None) -> None:
        plane.keys["n"].holder = None
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    async with AsyncClient(url) as client:
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(client.acquire_for_update("n", handler, ttl_s=0.2), WAIT_S)

    assert was_cancelled.is_set()


def test_handler_and_release_that_both_fail_are_both_told(plane: FakePlane, url: str) -> None:
    def handler(session: Session, state: State | None) -> None:
        plane.then("/v1/release", reply(500, error="internal_error"))
        raise KeyError("n")

    with Client(url) as client, pytest.raises(ExceptionGroup) as failed:
        client.acquire_for_update("n", handler)

    assert [type(problem).__name__ for problem in failed.value.exceptions] == ["KeyError", "ServerFailed"]


def test_a_passive_node_at_release_is_waited_for(plane: FakePlane, url: str) -> None:
    def handler(session: Session, state: State | None) -> None:
        session.save(1)
        plane.then("/v1/release", reply(503, error="node_passive"))

    with Client(url) as client:
        client.acquire_for_update("n", handler)

    assert plane.keys["n"].document == b"1"
    assert len(plane.at("/v1/release")) == 2


async def test_a_cancelled_call_leaves_no_lease(plane: FakePlane, url: str) -> None:
    is_inside = asyncio.Event()

    async def handler(session: AsyncSession, state: State | None) -> None:
        is_inside.set()
        await asyncio.Event().wait()

    async with AsyncClient(url) as client:
        task = asyncio.create_task(client.acquire_for_update("n", handler))
        await asyncio.wait_for(is_inside.wait(), WAIT_S)
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_S)

    assert task.cancelled()
    assert plane.keys["n"].holder is None


def test_a_server_that_stops_waits_for_the_handler(plane: FakePlane, url: str) -> None:
    def handler(session: Session, state: State | None) -> list[object]:
        plane.is_draining = True
        session.describe()
        return list(plane.at("/v1/release"))

    with Client(url) as client:
        released_inside = client.acquire_for_update("n", handler)

    assert released_inside == []
    assert plane.keys["n"].holder is None
