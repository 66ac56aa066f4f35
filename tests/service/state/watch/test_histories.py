"""Random histories of leases and documents: what a watch tells of them, from any revision, is what a model says.

The services are the real ones. Over PostgreSQL the watches are those of another process than the one that commits.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.state.layer.watch.hub import EventHub
from holdfast.state.layer.watch.watcher import KeyWatch
from holdfast.storage.port import Store
from holdfast.txn.layer.port import Decision, Member
from tests.conformance.backends import SMALL, Backend
from tests.infra.document_plane import Plane

KEYS: Final = ("a", "ab", "b/c")
PREFIXES: Final = ("", "a", "ab", "b/")
TTL_S: Final = 30

Told = tuple[str, str, int]
"""Type, key, and the version of a document or the token of a lease."""

_names = itertools.count()


class Step(NamedTuple):
    kind: str
    key: str
    flag: bool


steps = st.builds(
    Step,
    st.sampled_from(
        [
            "acquire",
            "acquire",
            "join",
            "update",
            "update",
            "hide",
            "remove",
            "keepalive",
            "release",
            "release",
            "wait",
        ]
    ),
    st.sampled_from(KEYS),
    st.booleans(),
)


@dataclass
class ModelKey:
    """What the model knows of a key; `staged` is the visible version after a commit, and whether there is content."""

    version: int = 0
    has_content: bool = False
    is_hidden: bool = False
    token: int = 0
    claim: Claim | None = None
    is_expired: bool = False
    lease_is_told: bool = False
    staged: "Staged | None" = None

    @property
    def is_visible(self) -> bool:
        return self.has_content and not self.is_hidden


@dataclass
class Staged:
    version: int
    has_content: bool
    is_hidden: bool


@dataclass
class History:
    """Runs steps against the services and tells what a watch should."""

    plane: Plane
    namespace: str
    told: list[list[Told]] = field(default_factory=list)
    keys: dict[str, ModelKey] = field(default_factory=lambda: {key: ModelKey() for key in KEYS})

    def member(self, key: str) -> Member:
        return Member(self.namespace, key)

    async def run(self, step: Step) -> None:
        known = self.keys[step.key]
        if step.kind in ("acquire", "join"):
            await self._acquire(step, known)
        elif step.kind == "wait":
            self.plane.time.advance(TTL_S + 1)
            for one in self.keys.values():
                one.is_expired = one.claim is not None
            if step.flag:
                await self.plane.leases.end_expired(self.member(step.key))
                self._end(step.key, Decision.ROLLBACK)
        elif known.claim is not None and not known.is_expired:
            await self._held(step, known, known.claim)
        elif known.claim is not None and step.kind == "release":
            await self.plane.release(self.member(step.key), known.claim)
            self._end(step.key, Decision.ROLLBACK)

    async def _acquire(self, step: Step, known: ModelKey) -> None:
        if known.claim is not None and not known.is_expired:
            return
        partner = next((one.claim for one in self.keys.values() if one.claim and not one.is_expired), None)
        txn_id = (partner.txn_id or "") if step.kind == "join" and partner is not None else ""
        ended = self._ended(step.key, Decision.ROLLBACK)
        known.claim = await self.plane.acquire(self.member(step.key), txn_id, ttl_s=TTL_S)
        known.token += 1
        known.is_expired = False
        known.lease_is_told = not known.is_hidden
        if known.lease_is_told:
            place = max((n for n, told in enumerate(ended) if told[1] <= step.key), default=-1) + 1
            ended.insert(place, ("acquired", step.key, known.token))
        self._tell(ended)

    async def _held(self, step: Step, known: ModelKey, claim: Claim) -> None:
        member, staged = self.member(step.key), known.staged
        now = staged or Staged(known.version + 1, known.has_content, known.is_hidden)
        match step.kind:
            case "update":
                await self.plane.update(member, claim, _content(now.version), is_hidden=step.flag or None)
                known.staged = Staged(now.version, True, now.is_hidden or step.flag)
            case "hide":
                await self.plane.state.hide(member, claim, step.flag, ANYTHING)
                known.staged = Staged(now.version, now.has_content, step.flag)
            case "remove":
                is_removed, version = await self.plane.state.remove(member, claim, ANYTHING)
                if is_removed:
                    known.staged = Staged(version, False, known.is_hidden)
            case "keepalive":
                await self.plane.leases.keepalive(member, claim, TTL_S)
            case _:
                decision = Decision.COMMIT if step.flag else Decision.ROLLBACK
                await self.plane.release(member, claim, decision)
                self._end(step.key, decision)

    def _end(self, key: str, decision: Decision) -> None:
        self._tell(self._ended(key, decision))

    def _tell(self, told: list[Told]) -> None:
        if told:
            self.told.append(told)

    def _ended(self, key: str, decision: Decision) -> list[Told]:
        """The transaction of a key ends, and with it those of all its keys."""
        claim = self.keys[key].claim
        if claim is None:
            return []
        members = {
            name: one
            for name, one in self.keys.items()
            if one.claim is not None and one.claim.txn_id == claim.txn_id
        }
        documents: list[Told] = []
        leases: list[Told] = []
        for name, known in sorted(members.items()):
            if known.staged is not None and decision is Decision.COMMIT:
                documents += _published(name, known, known.staged)
            if known.lease_is_told:
                leases.append(("expired" if known.is_expired else "released", name, known.token))
            known.claim, known.staged, known.is_expired = None, None, False
        return documents + leases


def _published(name: str, known: ModelKey, staged: Staged) -> list[Told]:
    was_visible = known.is_visible
    known.version, known.has_content, known.is_hidden = staged.version, staged.has_content, staged.is_hidden
    if known.is_visible:
        return [("put", name, known.version)]
    return [("delete", name, known.version)] if was_visible else []


def _content(version: int) -> bytes:
    return b'{"version":%d}' % version


class Watched(NamedTuple):
    plane: Plane
    hub: EventHub
    store: Store
    """Of the process that watches."""


@pytest.fixture
async def watched(backend: Backend) -> AsyncIterator[Watched]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(backend.open(SMALL))
        other = await stack.enter_async_context(backend.open(SMALL)) if store.is_shared else store
        hub = EventHub(other)
        await stack.enter_async_context(hub.running())
        yield Watched(Plane(store), hub, other)


async def told_by(watch: KeyWatch, count: int) -> list[tuple[int, list[Told]]]:
    found: list[tuple[int, list[Told]]] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            for change in await watch.next():
                events: list[Told] = []
                for event in change.events:
                    events.append((event.type.value, event.key, event.version or event.fencing_token))
                    assert (
                        event.type.value != "put" or event.etag == sha256(_content(event.version)).hexdigest()
                    )
                found.append((change.revision, events))
    assert len(found) == count
    return found


def narrowed(told: list[tuple[int, list[Told]]], prefix: str) -> list[tuple[int, list[Told]]]:
    narrow = [(revision, [one for one in events if one[1].startswith(prefix)]) for revision, events in told]
    return [(revision, events) for revision, events in narrow if events]


@given(
    history=st.lists(steps, min_size=30, max_size=60),
    percents=st.lists(st.integers(0, 100), min_size=len(PREFIXES), max_size=len(PREFIXES)),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_what_is_told_is_what_happened(
    watched: Watched, history: list[Step], percents: list[int]
) -> None:
    namespace = f"n{next(_names)}"
    model = History(watched.plane, namespace)
    start = watched.plane.store.revision
    live = await watched.hub.watch(namespace, "", start)
    try:
        for step in history:
            await model.run(step)

        whole = await told_by(live, len(model.told))
        assert [events for _, events in whole] == model.told
        assert [revision for revision, _ in whole] == sorted({revision for revision, _ in whole})

        for prefix, percent in zip(PREFIXES, percents, strict=True):
            after = start + (watched.plane.store.revision - start) * percent // 100
            late = await watched.hub.watch(namespace, prefix, after)
            wanted = [told for told in narrowed(whole, prefix) if told[0] > after]
            assert await told_by(late, len(wanted)) == wanted
            assert late.revision >= after
            late.close()
    finally:
        live.close()
