"""Public reads with a tiny memory for what is published: each must be the one of a model that knows when a commit is durable.

Three kinds of store: in memory, where a commit is durable at once; on disk; and one whose journal syncs when the machine says so,
so that there is every moment between what is staged, what is durable and what is answered.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.common.express.message import Header, Request, StreamAnswer, header_list
from holdfast.gateway.settings import GatewaySettings
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.document import published, staging
from holdfast.state.layer.document.published import ENTRY_BYTES, PublishedCache
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import ANYTHING, View
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.protocol.lockd import ready as ready_module
from holdfast.state.protocol.lockd.documents import StateRoutes
from holdfast.state.protocol.lockd.ready import Ready, ReadyAnswers
from holdfast.storage.codec.encoded import EncodedStore
from holdfast.storage.disk.store import open_disk
from holdfast.storage.intake import INLINE_BYTES_MAX
from holdfast.storage.local.engine import MemoryEngine
from holdfast.storage.local.pending import PendingBatch
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryBlobs, open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from holdfast.txn.layer.port import Decision, Member
from tests.conformance.backends import KEYRING, SMALL
from tests.infra.document_plane import Plane

T = TypeVar("T")

MEMBERS = [Member("default", key) for key in ("a", "b", "c/d")] + [Member("other", "a")]
SMALL_BYTES = 100
SHARES_MIN = 4
CACHE_BYTES = 4 * (ENTRY_BYTES + 2600)
"""Room for three documents of a middling size; a larger one is not kept."""

members = st.sampled_from(MEMBERS)


def _text(letter: bytes, size: int) -> bytes:
    return b'"%b"' % (letter * size)


texts = st.builds(
    _text,
    st.sampled_from([b"x", b"y", b"z"]),
    st.sampled_from([SMALL_BYTES, SMALL_BYTES, 2500, 2500, 4000, INLINE_BYTES_MAX]),
)


class Published(NamedTuple):
    """What every reader must see of a key. The version says nothing while there is no document."""

    version: int
    text: bytes | None


class Held(NamedTuple):
    """A lease, and what its commit will publish."""

    claim: Claim
    next: Published | None


class StepJournal:
    """Syncs when it is told to."""

    syncs = 0
    store: LocalStore

    def __init__(self) -> None:
        self.offered: list[PendingBatch] = []

    def offer(self, entry: bytes, staged: PendingBatch) -> None:
        self.offered.append(staged)

    def room_problem(self) -> None:
        return None

    def sync(self) -> set[bytes]:
        """The keys that changed by it."""
        group, self.offered = self.offered, []
        self.store.became_durable(group)
        return {key for staged in group for key, _, _ in staged.changes}


class Bench(NamedTuple):
    """A loop and a store on it."""

    runner: asyncio.Runner
    store: Store
    journal: StepJournal | None


@asynccontextmanager
async def stepping(journal: StepJournal) -> AsyncIterator[LocalStore]:
    store = journal.store = LocalStore(url="mem://", engine=MemoryEngine(), options=StoreOptions())
    store.attach(MemoryBlobs(store, store.clock), journal)
    yield store


@asynccontextmanager
async def encrypted() -> AsyncIterator[Store]:
    async with open_memory(StoreOptions(keyring=KEYRING)) as store:
        yield EncodedStore(store, KEYRING)


@contextmanager
def opened(
    opening: AbstractAsyncContextManager[Store], journal: StepJournal | None = None
) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        store = runner.run(opening.__aenter__())
        yield Bench(runner, store, journal)
        if journal is None:
            runner.run(opening.__aexit__(None, None, None))


class PublishedMachine(RuleBasedStateMachine):
    """Steps of holders and readers. `allowed`: what a reader may see of each key; once it has seen one, nothing older."""

    def __init__(self, open_next: Callable[[], AbstractAsyncContextManager[Bench]]) -> None:
        super().__init__()
        self._opened = cast(Any, open_next())
        self.bench: Bench = self._opened.__enter__()
        self.plane = Plane(self.bench.store)
        self.cache = PublishedCache[Ready](CACHE_BYTES)
        assert self.bench.store.keep_current(self.cache)
        self.routes = StateRoutes(GatewaySettings.isolated(store="mem://"))
        self.routes.service = self.plane.state
        self.routes.ready = ReadyAnswers(self.cache)
        self.allowed = {member: [Published(0, None)] for member in MEMBERS}
        self.held: dict[Member, Held] = {}

    def teardown(self) -> None:
        TOLD["hits"] += self.cache.hits
        TOLD["misses"] += self.cache.misses
        self.run(self._told())
        self._opened.__exit__(None, None, None)

    async def _told(self) -> None:
        """The leases have told of what they set free."""
        if self.plane.leases._tasks:
            await asyncio.wait(self.plane.leases._tasks)

    def run(self, work: Awaitable[T], after: tuple[Member, Published] | None = None) -> T:
        """Do something while readers look; `after`: what it makes of a key when its commit is durable."""
        return self.bench.runner.run(self._watched(work, after))

    async def _watched(self, work: Awaitable[T], after: tuple[Member, Published] | None) -> T:
        task = asyncio.ensure_future(work)
        journal = self.bench.journal
        if journal is None and after is not None:
            self.allowed[after[0]].append(after[1])
        try:
            while not task.done():
                await asyncio.sleep(0)
                await self.look()
                if journal is not None and journal.offered:
                    changed = journal.sync()
                    if after is not None and DOCUMENTS.key(*after[0]) in changed:
                        self.allowed[after[0]] = [after[1]]
                    await self.look()
        finally:
            task.cancel()  # A reader that saw something wrong ends it.
            await asyncio.wait({task})
        result = task.result()
        if after is not None:
            self.allowed[after[0]] = [after[1]]
        return result

    async def look(self) -> None:
        for member in MEMBERS:
            await self.read(member, f"key={member.key}&namespace={member.namespace}&public=1", None)
        await self.read(MEMBERS[0], "key=/a&public=on", None)  # Another name of the same.

    async def read(self, member: Member, query: str, if_none_match: str | None) -> None:
        headers: list[Header] = [(b"host", b"plane")]
        if if_none_match is not None:
            headers.append((b"if-none-match", if_none_match.encode()))
        request = Request("GET", "/v1/get", query.encode(), headers, b"", None, None, "id")
        answer = await self.routes.get(request, None)
        body = (
            answer.body
            if not isinstance(answer, StreamAnswer)
            else b"".join([c async for c in answer.chunks])
        )
        seen = (answer.status, header_list(answer, "id"), body)
        allowed = self.allowed[member]
        expected = [_answer(one, if_none_match) for one in allowed]
        assert seen in expected, (member, seen, expected)
        del allowed[: expected.index(seen)]
        assert self.cache.size_bytes <= CACHE_BYTES

    # -- readers

    @rule(
        member=members,
        spelling=st.sampled_from(["{0}", "/{0}", "%20{0}", "{0}&x=1"]),
        is_upper=st.booleans(),
        if_none_match=st.sampled_from([None, None, "*", '"other"', "broken\x01"]),
    )
    def a_reader_looks(
        self, member: Member, spelling: str, is_upper: bool, if_none_match: str | None
    ) -> None:
        key = member.key.upper() if is_upper else member.key
        namespace = "" if member.namespace == "default" else f"&namespace={member.namespace}"
        query = f"public=true&key={spelling.format(key)}{namespace}"
        self.bench.runner.run(self.read(member, query, if_none_match))

    @rule(member=members, is_old=st.booleans())
    def a_reader_that_has_it_looks(self, member: Member, is_old: bool) -> None:
        text = self.allowed[member][-1].text
        tag = sha256(b"old" if is_old or text is None else text).hexdigest()
        query = f"key={member.key}&namespace={member.namespace}&public=1"
        self.bench.runner.run(self.read(member, query, f'"other", W/"{tag}"'))

    @rule(only=st.lists(members, min_size=1, max_size=3))
    def some_keys_are_read_again_and_again(self, only: list[Member]) -> None:
        for member in only * 2:
            query = f"key={member.key}&namespace={member.namespace}&public=1"
            self.bench.runner.run(self.read(member, query, None))

    @invariant()
    def everybody_sees_what_is_published(self) -> None:
        self.bench.runner.run(self.look())

    # -- holders

    @rule(member=members)
    def a_key_is_acquired(self, member: Member) -> None:
        if member not in self.held:
            self.held[member] = Held(self.run(self.plane.acquire(member)), None)

    @rule(member=members, text=texts)
    def a_document_is_staged(self, member: Member, text: bytes) -> None:
        if (held := self.held.get(member)) is not None:
            view = self.run(self.plane.update(member, held.claim, text))
            self.held[member] = held._replace(next=Published(view.version, text))

    @rule(member=members, text=texts)
    def a_document_is_published(self, member: Member, text: bytes) -> None:
        self.a_key_is_acquired(member)
        self.a_document_is_staged(member, text)
        self.a_lease_is_released(member, Decision.COMMIT)

    @rule(member=members)
    def a_removal_is_staged(self, member: Member) -> None:
        if (held := self.held.get(member)) is not None:
            was_there, version = self.run(self.plane.state.remove(member, held.claim, ANYTHING))
            if was_there:
                self.held[member] = held._replace(next=Published(version, None))

    @rule(member=members, is_hidden=st.booleans())
    def a_key_is_hidden_or_shown(self, member: Member, is_hidden: bool) -> None:
        if (held := self.held.get(member)) is not None:
            view = self.run(self.plane.state.hide(member, held.claim, is_hidden, ANYTHING))
            self._restage(member, view.version)

    @rule(member=members)
    def an_attachment_is_staged(self, member: Member) -> None:
        if (held := self.held.get(member)) is not None:
            attached = self.run(self.plane.attach(member, held.claim, "name", b"content"))
            self._restage(member, attached.version)

    def _restage(self, member: Member, version: int) -> None:
        held = self.held[member]
        before = self.allowed[member][-1] if held.next is None else held.next
        self.held[member] = held._replace(next=before._replace(version=version))

    @rule(member=members, decision=st.sampled_from([Decision.COMMIT, Decision.COMMIT, Decision.ROLLBACK]))
    def a_lease_is_released(self, member: Member, decision: Decision) -> None:
        held = self.held.pop(member, None)
        if held is None:
            return
        is_published = decision is Decision.COMMIT and held.next is not None
        after = (member, held.next) if is_published and held.next is not None else None
        self.run(self.plane.release(member, held.claim, decision), after)

    @rule(member=members)
    def retention_takes_the_record_away(self, member: Member) -> None:
        if member in self.held:
            return
        deleted = self.bench.store.transact(lambda tx: DOCUMENTS.delete(tx, *member))
        self.run(deleted, (member, Published(0, None)))


def _answer(seen: Published, if_none_match: str | None) -> tuple[int, list[Header], bytes]:
    identity = (b"x-correlation-id", b"id")
    if seen.text is None:
        return 204, [identity], b""
    tag = sha256(seen.text).hexdigest()
    version = [(b"etag", tag.encode()), (b"x-key-version", b"%d" % seen.version)]
    if if_none_match is not None and (tag in if_none_match or if_none_match == "*"):
        return 304, [*version, identity], b""
    length = (b"content-length", b"%d" % len(seen.text))
    return 200, [(b"content-type", b"application/json"), *version, length, identity], seen.text


TOLD = {"hits": 0, "misses": 0}
"""Of all caches of the machines since the last walk began."""


def in_memory() -> Any:
    return opened(open_memory(StoreOptions()))


def in_memory_encrypted() -> Any:
    return opened(encrypted())


def step_by_step() -> Any:
    journal = StepJournal()
    return opened(stepping(journal), journal)


def on_disk(folder: Path) -> Callable[[], Any]:
    numbers = iter(range(1 << 30))
    return lambda: opened(open_disk(folder / str(next(numbers)), SMALL))


def walk(open_next: Callable[[], Any], examples: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
    TOLD.update(hits=0, misses=0)
    run_state_machine_as_test(
        cast("type[PublishedMachine]", partial(PublishedMachine, open_next)),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            phases=phases,
            report_multiple_bugs=False,
        ),
    )


@pytest.fixture(autouse=True)
def larger_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "SHARES_MIN", SHARES_MIN)


@pytest.mark.parametrize("open_next", [in_memory, in_memory_encrypted, step_by_step])
def test_every_read_is_what_is_published(open_next: Callable[[], Any]) -> None:
    walk(open_next, 60)

    assert TOLD["hits"] > 500  # The walk saw what it is for.
    assert TOLD["misses"] > 500


def test_every_read_on_disk_is_what_is_published(tmp_path: Path) -> None:
    walk(on_disk(tmp_path), 6)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_read_is_what_is_published_for_long(tmp_path: Path) -> None:
    for open_next, examples in ((in_memory, 1000), (step_by_step, 2000), (on_disk(tmp_path), 200)):
        walk(open_next, examples)


# -- the machine can fail


def _does_nothing(*_: object) -> None:
    pass


def _says_yes(*_: object) -> bool:
    return True


def nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PublishedCache, "forget", _does_nothing)


def forgotten_when_it_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the moment before the sync brings the old document back in."""
    genuine = LocalStore._stage

    def stage(store: LocalStore, batch: Any) -> PendingBatch:
        staged = genuine(store, batch)
        for derived in store._derived:
            derived.forget_all()
        return staged

    monkeypatch.setattr(LocalStore, "_stage", stage)
    nothing_is_forgotten(monkeypatch)


def forgotten_after_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = PublishedCache[Any].forget

    def forget(cache: PublishedCache[Any], keys: Any) -> None:
        asyncio.get_running_loop().call_later(0.001, genuine, cache, keys)

    monkeypatch.setattr(PublishedCache, "forget", forget)


def made_of_what_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a transaction sees it, which may build on what is not durable yet."""

    async def see_public(service: StateService, member: Member, see: Callable[[View], T]) -> T:
        store = cast(LocalStore, service._store)
        record = store._pending.get(DOCUMENTS.key(*member))
        document = staging.NOTHING if record is None else DOCUMENTS.decode(record)
        return see(staging.committed_view(document))

    monkeypatch.setattr(StateService, "see_public", see_public)


def one_for_all_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(answers: ReadyAnswers, request: Request) -> Any:
        ready = answers._cache.get(request.query_string.replace(b"namespace=other", b"namespace=default"))
        return None if ready is None else ready.to(request)

    monkeypatch.setattr(ReadyAnswers, "find", find)


def forgotten_under_one_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(cache: PublishedCache[Any], keys: Iterable[bytes]) -> None:
        for key in keys:
            for name in cache._names.get(key, [])[:1]:
                cache._drop(name)

    monkeypatch.setattr(PublishedCache, "forget", forget)


def one_etag_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_module, "is_named", _says_yes)


@pytest.mark.parametrize(
    "mutant",
    [
        nothing_is_forgotten,
        forgotten_when_it_is_staged,
        forgotten_after_the_answer,
        made_of_what_is_staged,
        one_for_all_namespaces,
        forgotten_under_one_name_alone,
        one_etag_for_all,
    ],
)
def test_a_memory_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)

    with pytest.raises((AssertionError, Flaky)):
        walk(step_by_step, 200, [Phase.generate])
