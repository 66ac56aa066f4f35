"""A random walk through the life of keys with forgetting in between, compared step by step with plain dicts.

On PostgreSQL the steps come from two stores on one database, as from two processes.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.common.clock import FakeClock
from holdfast.leases.layer.errors import Waiting
from holdfast.leases.layer.grant import Grant
from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.retention import Retention
from holdfast.leases.layer.rules import FLOORS
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.postgres.url import parse_url
from holdfast.txn.layer.port import Decision, Member
from tests.conformance.backends import SMALL, Backend, disk_backend, memory_backend, postgres_backend
from tests.infra.two_stores import on_database
from tests.service.retention.kept_plane import ALWAYS, KeptPlane, claim

KEY_S, DOCUMENT_S, TTL_S = 100.0, 300.0, 30
RETENTION = Retention(KEY_S, DOCUMENT_S, ALWAYS)
MEMBERS = st.sampled_from([Member(namespace, key) for namespace in ("default", "other") for key in "abc"])
PLANES = st.sampled_from([0, 1])


@dataclass
class Modelled:
    """One key as it must be. `token` is never reset: it is what must not repeat."""

    token: int = 0
    has_record: bool = False
    grant: Grant | None = None
    expires_at_s: float = 0.0
    used_at_s: float = 0.0
    staged: bytes | None = None
    is_removal_staged: bool = False
    text: bytes | None = None
    has_document_record: bool = False
    written_at_s: float = 0.0


class KeyMachine(RuleBasedStateMachine):
    """`fresh` is set by the test."""

    fresh: ClassVar[list[Callable[[], Backend]]]
    stores: int = 1
    is_durable = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.backend = self.fresh[0]()
        self.keys: dict[Member, Modelled] = {}
        self.floors: dict[str, int] = {}
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.stack = AsyncExitStack()
        self.planes = [
            KeptPlane(
                await self.stack.enter_async_context(
                    self.backend.open(replace(SMALL, clock=self.clock, postgres_pool_max=2))
                ),
                self.clock,
                RETENTION,
            )
            for _ in range(self.stores)
        ]

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    @property
    def now_s(self) -> int:
        return int(self.clock.wall_s())

    def plane(self, number: int) -> KeptPlane:
        return self.planes[number % len(self.planes)]

    def held(self, member: Member) -> Modelled | None:
        """The key, if it is held at this moment."""
        key = self.keys.get(member)
        is_held = key is not None and key.grant is not None and key.expires_at_s > self.clock.wall_s()
        return key if is_held else None

    # -- holders

    @rule(member=MEMBERS, plane=PLANES)
    def acquire(self, member: Member, plane: int) -> None:
        key = self.keys.setdefault(member, Modelled())
        if self.held(member) is not None:
            with pytest.raises(Waiting):
                self.runner.run(self.plane(plane).acquire(member, TTL_S))
            return
        grant = self.runner.run(self.plane(plane).acquire(member, TTL_S))
        assert grant.fencing_token > key.token, "a token repeats or falls"
        if key.has_record:
            assert grant.fencing_token == key.token + 1
        key.token = grant.fencing_token
        key.grant, key.has_record = grant, True
        key.expires_at_s = self.clock.wall_s() + TTL_S
        key.staged, key.is_removal_staged = None, False
        key.used_at_s = self.now_s

    @rule(member=MEMBERS, plane=PLANES, decision=st.sampled_from(Decision))
    def release(self, member: Member, plane: int, decision: Decision) -> None:
        key = self.held(member)
        if key is None or key.grant is None:
            return
        self.runner.run(self.plane(plane).release(member, key.grant, decision))
        key.grant, key.used_at_s = None, self.now_s
        if decision is Decision.COMMIT and (key.staged is not None or key.is_removal_staged):
            key.text, key.has_document_record, key.written_at_s = key.staged, True, self.now_s

    @rule(member=MEMBERS, plane=PLANES, number=st.integers(0, 9))
    def write(self, member: Member, plane: int, number: int) -> None:
        key = self.held(member)
        if key is not None and key.grant is not None:
            self.runner.run(self.plane(plane).stage(member, key.grant, b"%d" % number))
            key.staged, key.is_removal_staged = b"%d" % number, False

    @rule(member=MEMBERS, plane=PLANES)
    def remove(self, member: Member, plane: int) -> None:
        key = self.held(member)
        if key is not None and key.grant is not None and (key.text is not None or key.staged is not None):
            state = self.plane(plane).state
            self.runner.run(state.remove(member, claim(key.grant), ANYTHING))
            key.staged, key.is_removal_staged = None, True

    # -- time and operators

    @rule(seconds=st.sampled_from([1, 29, 31, 99, 101, 301]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(plane=PLANES)
    def forget(self, plane: int) -> None:
        self.runner.run(self.plane(plane).forget())
        self._end_expired_and_forget()

    @precondition(lambda self: self.stores > 1)
    @rule()
    def forget_at_once(self) -> None:
        """Both processes at the same time."""

        async def both() -> None:
            await asyncio.gather(*(plane.forget() for plane in self.planes))

        self.runner.run(both())
        self.runner.run(self.planes[0].forget())  # The loser may have left something.
        self._end_expired_and_forget()

    @precondition(lambda self: self.is_durable)
    @rule()
    def restart(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.run(self._open())

    def _end_expired_and_forget(self) -> None:
        now_s = self.clock.wall_s()
        for key in self.keys.values():
            if key.has_document_record and not self._is_held(key) and key.grant is None:
                retention_s = KEY_S if key.text is None else DOCUMENT_S
                if max(key.used_at_s, key.written_at_s) + retention_s <= now_s:
                    key.text, key.has_document_record = None, False
        for key in self.keys.values():
            if key.grant is not None and not self._is_held(key):
                key.grant, key.used_at_s = None, self.now_s  # The walk ended it.
            is_unused = key.grant is None and key.used_at_s + KEY_S <= now_s
            if key.has_record and is_unused and not key.has_document_record:
                key.has_record = False

    def _is_held(self, key: Modelled) -> bool:
        return key.grant is not None and key.expires_at_s > self.clock.wall_s()

    # -- at every moment

    @invariant()
    def what_is_left_is_what_the_model_says(self) -> None:
        for member, key in self.keys.items():
            lease, document, text = self.runner.run(self._look(member))
            assert lease == key.has_record, member
            assert document == key.has_document_record, member
            assert text == key.text, member

    @invariant()
    def a_floor_never_falls(self) -> None:
        for namespace in ("default", "other"):
            floor = self.runner.run(FLOORS.fetch(self.planes[0].store, namespace))
            token = 0 if floor is None else floor.fencing_token
            assert token >= self.floors.get(namespace, 0)
            self.floors[namespace] = token

    async def _look(self, member: Member) -> tuple[bool, bool, bytes | None]:
        plane = self.planes[-1]
        found = await plane.store.get_many([LEASES.key(*member), DOCUMENTS.key(*member)])
        return LEASES.key(*member) in found, DOCUMENTS.key(*member) in found, await plane.read(member)


def _run(examples: int, backend: Callable[[], Backend], *, stores: int = 1, is_durable: bool) -> None:
    class Machine(KeyMachine):
        pass

    Machine.fresh = [backend]
    Machine.stores = stores
    Machine.is_durable = is_durable
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


EXAMPLES = [pytest.param(10, id="some"), pytest.param(300, marks=pytest.mark.long, id="many")]


@pytest.mark.parametrize("examples", EXAMPLES)
def test_tokens_never_repeat_in_memory(examples: int) -> None:
    _run(examples, memory_backend, is_durable=False)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_tokens_never_repeat_on_disk(examples: int, tmp_path: Path) -> None:
    folders = iter(range(1_000_000))
    _run(examples, lambda: disk_backend(tmp_path / str(next(folders))), is_durable=True)


@pytest.mark.parametrize(
    "examples", [pytest.param(3, id="some"), pytest.param(60, marks=pytest.mark.long, id="many")]
)
def test_tokens_never_repeat_from_two_processes_on_postgres(examples: int, postgres_url: str) -> None:
    schema = parse_url(postgres_url).schema

    def fresh() -> Backend:
        asyncio.run(on_database(postgres_url, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'))
        return postgres_backend(postgres_url)

    _run(examples, fresh, stores=2, is_durable=True)
