"""What a read of a key that is known costs a transaction: calls are counted, so no clock is asked."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Transaction

READS = 20
CALLS_MAX = 8  # Half of what it was when reads were coroutines: 16.7.


@contextmanager
def calls() -> Iterator[list[str]]:
    """The names of all functions that are called in the block, those of C included."""
    seen: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)
        elif event == "c_call":
            seen.append(argument.__name__)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def reading(keys: list[bytes]) -> Callable[[Transaction], None]:
    def rule(tx: Transaction) -> None:
        for key in keys:
            tx.get(key)

    return rule


async def test_a_warm_read_in_a_transaction_costs_few_calls() -> None:
    keys = [b"key %d" % number for number in range(READS + 1)]
    async with open_memory(StoreOptions()) as store:
        await store.commit(Batch(puts=dict.fromkeys(keys, b"value")))
        await store.transact(reading(keys))
        with calls() as of_one:
            await store.transact(reading(keys[:1]))
        with calls() as of_many:
            await store.transact(reading(keys))

    assert (len(of_many) - len(of_one)) / READS <= CALLS_MAX
