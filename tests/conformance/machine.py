"""What the random walks over a backend share: what they write, how a store is opened, reopened and crashed."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from holdfast.storage.port import Batch, Store
from tests.conformance.backends import SMALL, Backend, disk_backend

KEYS = st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"c\xff", b"\xff"])
VALUES = st.binary(max_size=20)
COPIES_MAX = 10


def make_batch(puts: dict[bytes, bytes], deletes: set[bytes]) -> Batch:
    return Batch(puts=puts, deletes=deletes - puts.keys())


BATCHES = st.builds(make_batch, st.dictionaries(KEYS, VALUES, max_size=4), st.sets(KEYS, max_size=2))


class BackendMachine(RuleBasedStateMachine):
    """Rules are steps of a client; `crash` is the machine's."""

    def __init__(self, open_next: Callable[[], Backend], crash_copy: Callable[[], Backend] | None) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.backend = open_next()
        self.crash_copy = crash_copy
        self.opened: AbstractAsyncContextManager[Store] | None = None
        self.open()

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def open(self) -> None:
        self.opened = self.backend.open(SMALL)
        self.store: Store = self.run(self.opened.__aenter__())

    def close(self) -> None:
        assert self.opened is not None
        self.run(self.opened.__aexit__(None, None, None))
        self.opened = None

    @precondition(lambda self: self.backend.is_durable)
    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()

    @precondition(lambda self: self.crash_copy is not None)
    @rule()
    def crash(self) -> None:
        assert self.crash_copy is not None
        backend = self.crash_copy()  # What a kill leaves on the disk at this moment.
        self.close()
        self.backend = backend
        self.open()

    def teardown(self) -> None:
        if self.opened is not None:
            self.close()
        self.runner.close()


def walk(machine: Callable[[], BackendMachine], examples: int, *, steps: int) -> None:
    # Hypothesis takes any callable that makes a machine; its types know only of classes.
    run_state_machine_as_test(
        cast("type[BackendMachine]", machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


class DiskFolders:
    """A new folder for each walk and each crash."""

    def __init__(self, root: Path, *, encrypted: bool) -> None:
        self._root = root
        self._encrypted = encrypted
        self._count = 0

    def fresh(self) -> Backend:
        self._count += 1
        return disk_backend(self._root / str(self._count), encrypted=self._encrypted)

    def crashed(self) -> Backend:
        source = self._root / str(self._count)
        self._count += 1
        target = self._root / str(self._count)
        _copy_living(source, target)
        return disk_backend(target, encrypted=self._encrypted)


def _copy_living(source: Path, target: Path) -> None:
    """The journal prepares files and the engine removes some in the background: a copy that missed one is made again."""
    for _ in range(COPIES_MAX):
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("allocating.*", "*.spare"))
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target)
        else:
            return
    raise AssertionError(f"{source} never held still")
