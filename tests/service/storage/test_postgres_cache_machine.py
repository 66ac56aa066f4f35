"""Two stores on one database, as two processes have them, whose caches the machine lets fall behind: every transaction
must decide as if it had read the database at the moment of its commit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.storage.fetched import Fetched
from holdfast.storage.known_ranges import ENTRY_BYTES
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import EMPTY, RANGE_LIMIT_MAX, Batch, Record, Transaction
from holdfast.storage.postgres.feed import cache as cache_module
from holdfast.storage.postgres.feed.cache import RecordCache
from holdfast.storage.postgres.store import PostgresStore, open_postgres
from holdfast.storage.transact import TransactMixin
from tests.conformance.test_machine import Model

NEVER_S = 3600.0
LARGE = StoreOptions(postgres_poll_interval_s=NEVER_S, postgres_pool_max=3)
SMALL = StoreOptions(
    postgres_poll_interval_s=NEVER_S, postgres_pool_max=3, postgres_cache_bytes_max=4 * ENTRY_BYTES
)
KEYS = [b"a", b"b", b"c", b"d", b"e"]

keys = st.sampled_from(KEYS)
stores = st.integers(0, 1)


class Refused(Exception):
    """What a function raises on what it read."""


class Program(NamedTuple):
    """A function of a transaction: what it reads, when it refuses, what it writes."""

    prefetched: list[bytes]
    points: list[bytes]
    bounds: tuple[bytes, bytes] | None
    is_range_prefetched: bool
    refuses: int | None
    """Refuse if the number of records that were seen, modulo 2, is this."""
    puts: list[bytes]
    deletes: list[bytes]

    def run(self, tx: Transaction) -> list[Record | None]:
        is_named = self.bounds is not None and self.is_range_prefetched
        tx.prefetch(lambda: self.prefetched, lambda: [self.bounds] if self.bounds and is_named else [])
        seen: list[Record | None] = [tx.get(key) for key in self.points]
        if self.bounds is not None:
            seen += tx.range(*self.bounds, limit=RANGE_LIMIT_MAX if is_named else 10, expected=True)
        if self.refuses is not None and sum(record is not None for record in seen) % 2 == self.refuses:
            raise Refused(seen)
        for key in self.puts:
            tx.put(key, b"%d" % (sum(len(one.value) + one.version for one in seen if one is not None) % 100))
        for key in self.deletes:
            tx.delete(key)
        return seen


programs = st.builds(
    Program,
    prefetched=st.lists(keys, max_size=3, unique=True),
    points=st.lists(keys, max_size=3, unique=True),
    bounds=st.sampled_from([None, None, (b"b", b"d"), (b"b", b"d"), (b"a", b"c"), (b"d", b"f")]),
    is_range_prefetched=st.booleans(),
    refuses=st.none() | st.integers(0, 1),
    puts=st.lists(keys, max_size=2, unique=True),
    deletes=st.lists(keys, max_size=1),
)


class ModelTransaction:
    """A program over the model, alone."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.batch = Batch()

    def prefetch(self, keys: Callable[[], Sequence[bytes]], ranges: object = None) -> None:
        pass

    def get(self, key: bytes) -> Record | None:
        return self._model.records.get(key)

    def range(self, start: bytes, end: bytes, *, limit: int, expected: bool) -> list[Record]:
        return [record for key, record in sorted(self._model.records.items()) if start <= key < end]

    def put(self, key: bytes, value: bytes) -> None:
        self.batch.puts[key] = value

    def delete(self, key: bytes) -> None:
        self.batch.puts.pop(key, None)
        self.batch.deletes.add(key)


Outcome = tuple[str, list[Record | None]]


def outcome_on(model: Model, program: Program) -> Outcome:
    """What the program must answer now; its writes are in the model then."""
    tx = ModelTransaction(model)
    try:
        seen = program.run(cast(Transaction, tx))
    except Refused as refused:
        return "refused", refused.args[0]
    model.apply(tx.batch)
    return "done", seen


async def outcome_of(store: PostgresStore, program: Program) -> Outcome:
    try:
        return "done", await store.transact(program.run, attempts_max=100)
    except Refused as refused:
        return "refused", refused.args[0]


def copy_of(model: Model) -> Model:
    copied = Model()
    copied.records, copied.revision = dict(model.records), model.revision
    return copied


class FeedLook:
    """The feed of one store, which looks when it is told to. Its page may be held on its way, as of a moment ago."""

    def __init__(self, store: PostgresStore) -> None:
        follower: Any = store._follower
        self._look: Callable[[], Awaitable[None]] = follower._look
        self._page: Callable[..., Awaitable[Any]] = follower._page
        self._is_there = asyncio.Event()
        self._may_land = asyncio.Event()
        self._task: asyncio.Future[None] | None = None
        follower._look = self._wait_for_the_machine
        follower._page = self._held_page

    async def _wait_for_the_machine(self) -> None:
        pass

    async def _held_page(self, *arguments: Any) -> Any:
        page = await self._page(*arguments)
        self._is_there.set()
        await self._may_land.wait()
        return page

    @property
    def is_begun(self) -> bool:
        return self._task is not None

    async def begin(self) -> None:
        """Until the page has been read, or until all is done if there is no need of one."""
        self._may_land.clear()
        self._is_there.clear()
        self._task = asyncio.ensure_future(self._look())
        there = asyncio.ensure_future(self._is_there.wait())
        await asyncio.wait((self._task, there), return_when=asyncio.FIRST_COMPLETED)
        there.cancel()

    async def finish(self) -> None:
        self._may_land.set()
        if self._task is not None:
            task, self._task = self._task, None
            await task


class Pair:
    """Two stores that stay open for all walks; their feeds move when they are told to."""

    def __init__(self, runner: asyncio.Runner, opened: Sequence[PostgresStore]) -> None:
        self.runner = runner
        self.stores = opened
        self.looks = [FeedLook(store) for store in opened]
        self.landed_late = 0
        self.faults = 0

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def check(self, is_right: bool, told: object) -> None:
        """Counted, too: the second run of a walk that found a fault may differ, and then Hypothesis says so instead."""
        self.faults += not is_right
        assert is_right, told

    def feed(self, number: int) -> None:
        """A look from its beginning to its end."""
        look = self.looks[number]
        self.run(look.finish())
        self.run(look.begin())
        self.run(look.finish())

    def reset(self) -> Model:
        """An empty store, of which both know everything."""
        for look in self.looks:
            self.run(look.finish())
        revision = self.run(self.stores[0].commit(Batch(deletes=set(KEYS))))
        for number, store in enumerate(self.stores):
            store._cache.lost()
            self.feed(number)
        model = Model()
        model.revision = revision
        return model


class CacheMachine(RuleBasedStateMachine):
    """Steps of clients, and of the feeds of the two stores."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair
        self.model = pair.reset()
        self.begun_at = [0, 0]

    @rule(number=stores, program=programs)
    def transact(self, number: int, program: Program) -> None:
        expected = outcome_on(self.model, program)

        outcome = self.pair.run(outcome_of(self.pair.stores[number], program))
        self.pair.check(outcome == expected, f"{outcome}, not {expected}")

    @rule(one=programs, other=programs, numbers=st.tuples(stores, stores))
    def transact_together(self, one: Program, other: Program, numbers: tuple[int, int]) -> None:
        async def together() -> list[Outcome]:
            here, there = (self.pair.stores[number] for number in numbers)
            return list(await asyncio.gather(outcome_of(here, one), outcome_of(there, other)))

        first, second = self.pair.run(together())

        forth, back = copy_of(self.model), copy_of(self.model)
        one_first = (outcome_on(forth, one), outcome_on(forth, other))
        other_first = (outcome_on(back, other), outcome_on(back, one))[::-1]
        told = f"{first} and {second}, neither {one_first} nor {other_first}"
        self.pair.check((first, second) in (one_first, other_first), told)
        records = self.pair.run(self.pair.stores[0].get_many(KEYS))
        explained = [
            model
            for model, outcome in ((forth, one_first), (back, other_first))
            if outcome == (first, second) and model.records == records
        ]
        self.pair.check(bool(explained), "the two outcomes are of one order, the records of another")
        self.model = explained[0]

    @rule(number=stores, puts=st.dictionaries(keys, st.binary(max_size=3), max_size=2))
    def commit_blindly(self, number: int, puts: dict[bytes, bytes]) -> None:
        batch = Batch(puts=puts)

        assert self.pair.run(self.pair.stores[number].commit(batch)) == self.model.apply(batch)

    @rule(number=stores)
    def the_feed_moves(self, number: int) -> None:
        self.pair.feed(number)

    @rule(number=stores)
    def a_look_of_the_feed_begins(self, number: int) -> None:
        """What is committed before it ends, here or there, is not in its page."""
        if not self.pair.looks[number].is_begun:
            self.begun_at[number] = self.model.revision
            self.pair.run(self.pair.looks[number].begin())

    @precondition(lambda self: any(look.is_begun for look in self.pair.looks))
    @rule(number=stores)
    def a_look_of_the_feed_ends(self, number: int) -> None:
        if self.pair.looks[number].is_begun:
            self.pair.landed_late += self.model.revision > self.begun_at[number]
            self.pair.run(self.pair.looks[number].finish())

    @rule(number=stores, elsewhere=stores, program=programs)
    def a_transaction_overtakes_a_page_of_the_feed(
        self, number: int, elsewhere: int, program: Program
    ) -> None:
        self.a_look_of_the_feed_begins(number)
        self.transact(elsewhere, program)
        self.a_look_of_the_feed_ends(number)

    @rule(number=stores)
    def the_feed_is_lost(self, number: int) -> None:
        """A look of it failed."""
        self.pair.run(self.pair.looks[number].finish())
        self.pair.stores[number]._cache.lost()

    @precondition(lambda self: self.model.revision > self.pair.stores[0].compacted_revision)
    @rule()
    def history_is_compacted(self) -> None:
        self.pair.run(self.pair.stores[0].compact(self.model.revision))

    @invariant()
    def a_cache_takes_no_more_than_it_may(self) -> None:
        for store in self.pair.stores:
            assert store.figures()["cache_bytes"] <= store._cache._size_bytes_max


@contextmanager
def open_pair(url: str) -> Iterator[Pair]:
    async def opened() -> list[PostgresStore]:
        return [await stack.enter_async_context(open_postgres(url, options)) for options in (LARGE, SMALL)]

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            yield Pair(runner, runner.run(opened()))
        finally:
            runner.run(stack.aclose())


def walk(url: str, examples: int) -> dict[str, float]:
    """The figures of both stores together."""
    with open_pair(url) as pair:
        _walk(pair, examples, Phase.explicit, Phase.generate, Phase.shrink)
        figures = [store.figures() for store in pair.stores]
    return {name: sum(one[name] for one in figures) for name in figures[0]} | {
        "pages_landed_late": pair.landed_late
    }


def is_noticed(url: str) -> bool:
    """Whether a walk meets a planted fault, of which no small example is wanted."""
    with open_pair(url) as pair:
        with suppress(AssertionError, Flaky):
            _walk(pair, 300, Phase.generate)
        return pair.faults > 0


def _walk(pair: Pair, examples: int, *phases: Phase) -> None:
    run_state_machine_as_test(
        cast("type[CacheMachine]", lambda: CacheMachine(pair)),
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            phases=phases,
            report_multiple_bugs=False,
        ),
    )


@pytest.fixture(autouse=True)
def guesses_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "GUESS_AFTER", 1)
    monkeypatch.setattr(cache_module, "CHANGES_MAX", 2)


def test_two_stores_with_caches_behave_like_the_model(postgres_url: str) -> None:
    figures = walk(postgres_url, 100)

    # The walk saw what it is for.
    for name in ("cache_hits", "cache_misses", "cache_verified", "cache_conflicts", "pages_landed_late"):
        assert figures[name] > 10, name


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_stores_with_caches_behave_like_the_model_for_long(postgres_url: str) -> None:
    walk(postgres_url, 2000)


def test_events_that_never_come_cost_conflicts_and_nothing_else(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropped(*_: object) -> None:
        pass

    monkeypatch.setattr(RecordCache, "changed", dropped)
    monkeypatch.setattr(RecordCache, "passed", dropped)

    figures = walk(postgres_url, 15)

    assert figures["cache_conflicts"] > 20


# -- the checks can fail


def test_a_commit_that_does_not_check_cached_reads_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PostgresStore.commit

    async def trusting(store: PostgresStore, batch: Batch) -> int:
        for key in [key for key in batch.expects if key in store._cache]:
            del batch.expects[key]
        return await commit(store, batch)

    monkeypatch.setattr(PostgresStore, "commit", trusting)

    assert is_noticed(postgres_url)


def test_a_commit_that_does_not_check_ranges_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PostgresStore.commit

    async def trusting(store: PostgresStore, batch: Batch) -> int:
        batch.expect_ranges.clear()
        return await commit(store, batch)

    monkeypatch.setattr(PostgresStore, "commit", trusting)

    assert is_noticed(postgres_url)


def test_a_range_that_is_guessed_to_be_empty_and_not_checked_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PostgresStore.commit

    async def trusting(store: PostgresStore, batch: Batch) -> int:
        batch.expect_ranges[:] = [one for one in batch.expect_ranges if one.revision != EMPTY]
        return await commit(store, batch)

    monkeypatch.setattr(PostgresStore, "commit", trusting)

    assert is_noticed(postgres_url)


def test_a_decision_without_a_commit_that_is_not_verified_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = TransactMixin._check

    async def trusting(store: TransactMixin, batch: Batch, fetched: Fetched | None) -> Any:
        return None if fetched is not None and fetched.is_unverified else await check(store, batch, fetched)

    monkeypatch.setattr(TransactMixin, "_check", trusting)

    assert is_noticed(postgres_url)
