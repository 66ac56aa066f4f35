"""Two watches become one, in the order of revisions, whichever is quicker."""

import asyncio
from collections.abc import Sequence
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.layer.watch.follower import MergedWatch
from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.port import Event


class ScriptedWatch:
    """Delivers what the test says when it says so, as a watch of a store does: `revision` rises with what was taken."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._events: list[Event] = []
        self._newest = self._taken = 0
        self._error: StoreUnavailable | None = None

    @property
    def revision(self) -> int:
        return self._taken if self._events else self._newest

    def commit(self, revision: int, keys: Sequence[bytes]) -> None:
        """To a store that has reached this revision."""
        self._newest = revision
        self._events += [Event(revision, key, None) for key in keys]
        if keys:
            self._arrived.set()

    def fail(self) -> None:
        self._error = StoreUnavailable("gone")
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        while not self._events:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        taken, self._events = self._events, []
        self._taken = taken[-1].revision
        return taken

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None: ...


@given(
    commits=st.lists(
        st.tuples(st.sets(st.sampled_from([b"a", b"b"])), st.sets(st.sampled_from([b"x", b"y"])))
    ),
    turns=st.lists(st.integers(0, 3)),
)
async def test_everything_comes_once_and_in_order(
    commits: list[tuple[set[bytes], set[bytes]]], turns: list[int]
) -> None:
    watches = ScriptedWatch(), ScriptedWatch()
    told: list[Event] = []

    async def tell(events: list[Event]) -> None:
        told.extend(events)
        await asyncio.sleep(0)

    merged = MergedWatch(watches, tell)
    running = asyncio.ensure_future(merged.run())
    wanted: list[tuple[int, bytes]] = []
    for number, changed in enumerate(commits, start=1):
        for watch, keys in zip(watches, changed, strict=True):
            watch.commit(number, sorted(keys))
            wanted += [(number, key) for key in sorted(keys)]
        for _ in range(turns[number % len(turns)] if turns else 0):
            await asyncio.sleep(0)
        assert all(event.revision <= merged.revision for event in told)
        assert [place for place in wanted if place[0] <= merged.revision] == [
            (event.revision, event.key) for event in told
        ]
    for _ in range(4):
        await asyncio.sleep(0)

    assert [(event.revision, event.key) for event in told] == wanted
    assert merged.revision == len(commits)
    running.cancel()


async def test_the_end_of_one_watch_ends_all() -> None:
    watches = ScriptedWatch(), ScriptedWatch()

    async def tell(events: list[Event]) -> None: ...

    watches[1].fail()

    with pytest.raises(ExceptionGroup) as caught:
        await MergedWatch(watches, tell).run()
    assert isinstance(caught.value.exceptions[0], StoreUnavailable)
