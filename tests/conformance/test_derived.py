"""What is kept in memory of records is told of every change before it is read, or the store says that it can't be kept."""

from collections.abc import Container, Iterable

from holdfast.storage.port import Batch, Store


class Kept:
    """Something is kept of nearly every key."""

    def __contains__(self, key: object) -> bool:
        return key != b"not kept"


class Notes:
    """Which keys were to be forgotten, in order."""

    def __init__(self) -> None:
        self.kept: Container[bytes] = Kept()
        self.forgotten: list[bytes] = []

    def forget(self, keys: Iterable[bytes]) -> None:
        self.forgotten += keys

    def forget_all(self) -> None:
        """The store closes."""


async def test_a_store_of_one_process_tells_of_each_change_before_the_commit_is_answered(
    store: Store,
) -> None:
    notes = Notes()
    is_told = store.keep_current(notes)
    told: list[list[bytes]] = []
    for batch in (
        Batch(puts={b"a": b"1", b"b": b"1"}),
        Batch(puts={b"a": b"2", b"not kept": b"1"}, deletes={b"b"}),
        Batch(expects={b"a": 2}),
        Batch(deletes={b"a", b"never"}),
    ):
        await store.commit(batch)
        told.append(notes.forgotten)
        notes.forgotten = []

    assert is_told is not store.is_shared
    assert told == ([[b"a", b"b"], [b"a", b"b"], [], [b"a"]] if is_told else [[], [], [], []])
