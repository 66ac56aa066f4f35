"""What a transaction sees of the key space, and of itself: as etcd does it, tried with version 3.4.23."""

from collections.abc import AsyncIterator

import pytest

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.state.layer.kv.errors import DuplicateKey, RevisionInFuture, TooManyOperations
from holdfast.state.layer.kv.operation import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRangeRequest,
    Operation,
    PutRequest,
    PutResult,
    RangeRequest,
    RangeResult,
    TxnRequest,
    TxnResult,
)
from holdfast.state.layer.kv.service import KvService
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions


@pytest.fixture
async def service() -> AsyncIterator[KvService]:
    """With one key, which the second revision created."""
    async with open_memory(StoreOptions()) as store:
        service = KvService(store, SteadyClock(FakeClock()))
        async with service.running():
            await service.put(PutRequest(b"a", b"old"))
            yield service


IS_NEW = Compare(b"new", target=CompareTarget.CREATE)
OPERATIONS_MAX = 128


def then(*operations: Operation) -> TxnRequest:
    return TxnRequest(success=operations)


def values(result: object) -> list[bytes]:
    assert isinstance(result, RangeResult)
    return [kv.value for kv in result.kvs]


async def test_branches_are_chosen_before_the_first_operation(service: KvService) -> None:
    """Also those of a transaction within another one, which puts before it what it compares."""
    inner = TxnRequest(
        (IS_NEW,), success=(PutRequest(b"chosen", b"success"),), failure=(PutRequest(b"chosen"),)
    )

    result = await service.txn(then(PutRequest(b"new", b"1"), inner))

    _, told = result.results
    assert isinstance(told, TxnResult)
    assert told.succeeded
    assert values(await service.range(RangeRequest(b"chosen"))) == [b"success"]


async def test_a_range_sees_what_the_operations_before_it_did(service: KvService) -> None:
    result = await service.txn(
        then(
            RangeRequest(b"a", b"z"),
            PutRequest(b"b", b"new"),
            RangeRequest(b"a", b"z"),
            DeleteRangeRequest(b"a"),
            RangeRequest(b"a", b"z"),
        )
    )

    before, _, between, _, after = result.results
    assert [values(one) for one in (before, between, after)] == [[b"old"], [b"old", b"new"], [b"new"]]
    assert [one.revision for one in result.results] == [2, 3, 3, 3, 3]


async def test_a_range_of_a_revision_sees_nothing_of_its_own_transaction(service: KvService) -> None:
    await service.put(PutRequest(b"a", b"older now"))

    result = await service.txn(
        then(PutRequest(b"a", b"new"), RangeRequest(b"a", revision=3), RangeRequest(b"a", revision=2))
    )

    _, latest, oldest = result.results
    assert (values(latest), values(oldest)) == ([b"older now"], [b"old"])


async def test_a_range_of_a_revision_finds_what_its_own_transaction_deleted(service: KvService) -> None:
    result = await service.txn(then(DeleteRangeRequest(b"a"), RangeRequest(b"a", b"z", revision=2)))

    assert values(result.results[1]) == [b"old"]


async def test_the_revision_of_a_transaction_is_in_the_future_of_its_ranges(service: KvService) -> None:
    with pytest.raises(RevisionInFuture):
        await service.txn(then(PutRequest(b"a", b"new"), RangeRequest(b"a", revision=3)))

    assert await service.revision() == 2


async def test_a_compare_over_a_range_without_keys_is_one_of_zeros(service: KvService) -> None:
    empty = Compare(b"x", b"y", CompareResult.GREATER, CompareTarget.VERSION, 0)
    no_value = Compare(b"x", b"y", CompareResult.NOT_EQUAL, CompareTarget.VALUE, b"1")
    zero = Compare(b"x", b"y", CompareResult.EQUAL, CompareTarget.MOD, 0)

    held = [(await service.txn(TxnRequest((one,)))).succeeded for one in (empty, no_value, zero)]

    assert held == [False, False, True]


@pytest.mark.parametrize(
    "branch",
    [
        (PutRequest(b"k"), PutRequest(b"k")),
        (PutRequest(b"k"), DeleteRangeRequest(b"k")),
        (DeleteRangeRequest(b"a", b"z"), PutRequest(b"k")),
        (DeleteRangeRequest(b"a", b"\0"), PutRequest(b"k")),
        (PutRequest(b"k"), then(PutRequest(b"k"))),
        (then(PutRequest(b"k")), then(PutRequest(b"k"))),
        (DeleteRangeRequest(b"k"), then(PutRequest(b"k"))),
    ],
)
async def test_a_key_is_changed_once_also_in_the_branch_that_does_not_run(
    service: KvService, branch: tuple[Operation, ...]
) -> None:
    for request in (TxnRequest(success=branch), TxnRequest(failure=branch)):
        with pytest.raises(DuplicateKey):
            await service.txn(request)


@pytest.mark.parametrize(
    "branch",
    [
        (PutRequest(b"k"), RangeRequest(b"k")),
        (DeleteRangeRequest(b"a", b"c"), DeleteRangeRequest(b"b", b"d"), PutRequest(b"e")),
        (DeleteRangeRequest(b"a", b"k"), PutRequest(b"k")),
        (TxnRequest(success=(PutRequest(b"k"),), failure=(PutRequest(b"k"),)),),
    ],
)
async def test_other_operations_on_one_key_go_together(
    service: KvService, branch: tuple[Operation, ...]
) -> None:
    assert (await service.txn(TxnRequest(success=branch))).succeeded


async def test_a_transaction_has_a_number_of_operations_at_most(service: KvService) -> None:
    puts = tuple(PutRequest(b"%d" % number) for number in range(OPERATIONS_MAX + 1))
    compares = tuple(Compare(one.key) for one in puts)

    result = await service.txn(TxnRequest(compares[1:], puts[1:], puts[1:]))
    for request in (TxnRequest(compares), TxnRequest(success=puts), TxnRequest(failure=puts)):
        with pytest.raises(TooManyOperations):
            await service.txn(request)

    assert {type(one) for one in result.results} == {PutResult}
    assert {one.revision for one in result.results} == {3}
