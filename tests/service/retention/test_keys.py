"""Keys without a document are forgotten when they were not used for long, and their tokens never repeat."""

import asyncio

import pytest

from holdfast.leases.layer.errors import AlreadyExists
from holdfast.leases.layer.grant import AcquireParams
from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.retention import Retention
from holdfast.leases.layer.rules import FLOORS, MESSAGE_TOKENS_MAX
from holdfast.queue.layer.message.records import member_of_state
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.storage.maintenance.janitor import JanitorPace
from holdfast.txn.layer.port import Decision, Member
from tests.service.queue.words import ORDERS
from tests.service.retention.kept_plane import DAY_S, KEYS_ONLY, KeptPlane, claim

A, B = Member("default", "a"), Member("default", "b")
OTHER_NAMESPACE = Member("other", "a")


async def test_a_key_not_used_for_a_day_leaves_no_record(plane: KeptPlane) -> None:
    await plane.use(A)
    before = await plane.tables()
    plane.clock.advance(DAY_S - 60)
    assert await plane.keys.walk() == 0
    plane.clock.advance(120)

    assert await plane.keys.walk() == 1

    assert before["lease"] == 1
    assert await plane.tables() == {"leasefloor": 1, "sys": 1}
    assert b"holdfast_retention_keys_forgotten_total 1" in plane.registry.render()


async def test_the_token_of_a_forgotten_key_never_repeats(plane: KeptPlane) -> None:
    tokens = [await plane.use(A) for _ in range(3)]
    for _ in range(3):
        plane.clock.advance(2 * DAY_S)
        assert await plane.keys.walk() == 1
        tokens += [await plane.use(A), await plane.use(A)]

    assert tokens == sorted(set(tokens))


async def test_the_floor_is_the_highest_token_of_its_namespace_and_never_falls(plane: KeptPlane) -> None:
    for _ in range(5):
        await plane.use(A)
    plane.clock.advance(2 * DAY_S)
    await plane.keys.walk()
    assert await plane.use(B) == 6
    assert await plane.use(OTHER_NAMESPACE) == 1

    plane.clock.advance(2 * DAY_S)
    await plane.keys.walk()

    assert await plane.use(A) == 7
    assert await plane.use(OTHER_NAMESPACE) == 2


async def test_a_key_that_is_held_or_was_kept_alive_stays(plane: KeptPlane) -> None:
    grant = await plane.acquire(A, ttl_s=int(3 * DAY_S))
    await plane.use(B)
    plane.clock.advance(2 * DAY_S)

    assert await plane.keys.walk() == 1

    await plane.release(A, grant)
    assert await plane.use(A) == grant.fencing_token + 1


async def test_keeping_a_lease_alive_is_using_its_key(plane: KeptPlane) -> None:
    grant = await plane.acquire(A, ttl_s=int(2 * DAY_S))
    plane.clock.advance(1.5 * DAY_S)
    await plane.leases.keepalive(A, claim(grant), 30)
    plane.clock.advance(60)
    await plane.keys.walk()  # Its time is over.
    plane.clock.advance(DAY_S - 120)
    assert await plane.keys.walk() == 0
    plane.clock.advance(120)

    assert await plane.keys.walk() == 1


async def test_reading_a_key_is_not_using_it(plane: KeptPlane) -> None:
    await plane.use(A)
    plane.clock.advance(DAY_S - 60)
    await plane.leases.describe(A)
    await plane.read(A)
    plane.clock.advance(60)

    assert await plane.keys.walk() == 1


async def test_a_key_that_was_hidden_and_forgotten_is_not_hidden_any_more(plane: KeptPlane) -> None:
    grant = await plane.acquire(A)
    await plane.state.hide(A, claim(grant), True, ANYTHING)
    await plane.release(A, grant)
    assert (await plane.state.get_public(A)).is_hidden
    plane.clock.advance(2 * DAY_S)

    await plane.forget()

    assert not (await plane.state.get_public(A)).is_hidden
    assert "doc" not in await plane.tables()


async def test_a_run_that_did_something_says_so(plane: KeptPlane, capsys: pytest.CaptureFixture[str]) -> None:
    await plane.use(A)
    await plane.keys.walk()
    assert "janitor.pass.done" not in capsys.readouterr().err
    plane.clock.advance(2 * DAY_S)

    await plane.keys.walk()

    assert '"msg":"janitor.pass.done"' in capsys.readouterr().err


async def test_a_key_with_a_document_stays(plane: KeptPlane) -> None:
    await plane.write(A, b"{}")
    await plane.attach(B, "file", b"content")
    plane.clock.advance(2 * DAY_S)

    assert await plane.forget() == 0

    assert (await plane.acquire(A)).current.version == 1
    assert (await plane.acquire(B)).fencing_token == 2


async def test_what_a_removed_document_leaves_goes_with_its_key(plane: KeptPlane) -> None:
    await plane.write(A, b'{"a":1}')
    await plane.remove(A)
    plane.clock.advance(60)
    assert await plane.forget() == 0
    assert (await plane.state.get_public(A)).version == 2  # Versions count on until then.
    plane.clock.advance(2 * DAY_S)

    assert await plane.forget() == 2  # The version, and the token.

    tables = await plane.tables()
    assert not {"lease", "doc", "docgone", "held"} & tables.keys()
    assert (await plane.acquire(A)).current.version == 0


async def test_a_removed_document_that_is_written_again_stays(plane: KeptPlane) -> None:
    await plane.write(A, b'{"a":1}')
    await plane.remove(A)
    await plane.write(A, b'{"a":2}')
    plane.clock.advance(2 * DAY_S)

    assert await plane.forget() == 0

    assert await plane.read(A) == b'{"a":2}'
    assert "docgone" not in await plane.tables()


async def test_a_forgotten_key_can_be_created_again(plane: KeptPlane) -> None:
    await plane.use(A)
    create = AcquireParams(A, "worker", 30, 0.0, is_create_only=True)
    with pytest.raises(AlreadyExists):
        await plane.leases.acquire(create)
    plane.clock.advance(2 * DAY_S)
    await plane.keys.walk()

    assert (await plane.leases.acquire(create)).fencing_token == 2


async def test_a_lease_that_its_process_never_ended_is_ended_and_forgotten_later(plane: KeptPlane) -> None:
    await plane.acquire(A, ttl_s=5)  # The expiry of this process does not run.
    plane.clock.advance(10)

    assert await plane.keys.walk() == 0
    assert not (await LEASES.fetch(plane.store, *A) or LEASES).lease_id  # type: ignore[union-attr]
    plane.clock.advance(2 * DAY_S)
    assert await plane.keys.walk() == 1


async def test_a_transaction_over_keys_keeps_them_until_it_is_decided(plane: KeptPlane) -> None:
    first = await plane.acquire(A, ttl_s=int(3 * DAY_S))
    await plane.acquire(B, ttl_s=int(3 * DAY_S), txn_id=first.txn_id)
    plane.clock.advance(2 * DAY_S)
    assert await plane.keys.walk() == 0

    await plane.release(A, first, Decision.ROLLBACK)
    plane.clock.advance(2 * DAY_S)

    assert await plane.keys.walk() == 2


async def test_a_grant_that_a_forget_overtakes_runs_again(plane: KeptPlane) -> None:
    """On PostgreSQL the two are really interleaved; the one that loses looks again."""
    for _ in range(4):
        await plane.use(A)
    plane.clock.advance(2 * DAY_S)

    tokens = await asyncio.gather(
        *(plane.use(Member("default", f"new-{n}")) for n in range(20)), plane.forget()
    )
    again = await plane.use(A)

    assert again == 5
    assert all(token in (1, 5) for token in tokens[:-1])


# -- the state of messages


async def test_the_token_of_a_message_state_never_repeats_after_its_message(plane: KeptPlane) -> None:
    """An ack takes the state's lease with it; a later acquire of that key must not get an old token."""
    async with plane.queue.service.running():
        await plane.queue.enqueue()
        delivery = await plane.queue.dequeue(with_state=True)
        assert delivery.state is not None
        state = member_of_state(ORDERS, delivery.message.message_id)
        await plane.queue.ack(delivery)

    assert delivery.state.fencing_token == 1
    assert await plane.use(state) == MESSAGE_TOKENS_MAX + 1


async def test_an_ack_does_not_touch_the_floor_of_the_namespace(plane: KeptPlane) -> None:
    async with plane.queue.service.running():
        await plane.queue.enqueue()
        await plane.queue.ack(await plane.queue.dequeue(with_state=True))

    assert await FLOORS.fetch(plane.store, ORDERS.namespace) is None
    assert await plane.use(A) == 1


async def test_the_state_of_a_message_is_kept_as_long_as_its_message(plane: KeptPlane) -> None:
    async with plane.queue.service.running():
        message = await plane.queue.enqueue()
        state = member_of_state(ORDERS, message.message_id)
        before = await plane.use(state)
        await plane.queue.nack(await plane.queue.dequeue(with_state=True))
        plane.clock.advance(40 * DAY_S)
        assert await plane.forget() == 0

        delivery = await plane.queue.dequeue(with_state=True)

    assert delivery.state is not None
    assert before < delivery.state.fencing_token == before + 2


# -- the walk itself


async def test_two_walkers_share_one_pass(plane: KeptPlane) -> None:
    hourly = Retention(DAY_S, 0.0, JanitorPace(interval_s=3600.0, pause_s=0.0))
    one, other = (KeptPlane(plane.store, plane.clock, hourly) for _ in range(2))
    for number in range(600):
        await plane.use(Member("default", f"key-{number:03}"))
    plane.clock.advance(2 * DAY_S)

    counts = await asyncio.gather(one.keys.walk(), other.keys.walk())

    assert sorted(counts) == [0, 600]
    await plane.use(A)
    plane.clock.advance(1800)
    assert await one.keys.walk() == 0
    assert (await plane.tables())["lease"] == 1


async def test_another_process_goes_on_where_one_died(
    plane: KeptPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly = Retention(DAY_S, 0.0, JanitorPace(interval_s=3600.0, pause_s=0.0))
    dying, heir = (KeptPlane(plane.store, plane.clock, hourly) for _ in range(2))
    await plane.use(A)
    plane.clock.advance(2 * DAY_S)

    async def die(records: object) -> int:
        raise asyncio.CancelledError

    monkeypatch.setattr(dying.keys._janitor, "_visit", die)
    with pytest.raises(asyncio.CancelledError):
        await dying.keys.walk()

    assert await heir.keys.walk() == 0  # It may only be slow.
    plane.clock.advance(61)
    assert await heir.keys.walk() == 1


async def test_without_a_retention_nothing_walks(plane: KeptPlane) -> None:
    never = KeptPlane(plane.store, plane.clock, KEYS_ONLY._replace(key_s=0.0))

    async with never.keys.running(), never.documents.running():
        names = {task.get_name() for task in asyncio.all_tasks()}

    assert not any(name.startswith("janitor") for name in names)
