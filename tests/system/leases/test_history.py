"""Histories of leases under pauses: what the clients saw could have come from one exclusive lease per key."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.leases.layer import rules as lease_rules
from holdfast.leases.layer.grant import Claim
from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.state.layer.document import holding as state_holding
from holdfast.state.layer.document import service as state_service
from holdfast.state.layer.document import staging
from holdfast.state.layer.records import DOCUMENTS, STAGES
from holdfast.txn.layer.port import Member
from tests.system.leases.fast_time import FastClock, use_clock
from tests.system.leases.history import TTL_S, History, record, run_fast
from tests.system.leases.model import REFUSED, Granted, Violation, first_violation
from tests.system.leases.wire import WireClient, plane

T = TypeVar("T")

HISTORIES = 40
HISTORIES_BRIEF = 12
AT_ONCE = 4
OPERATIONS = 500
SEED = 20260701
PAUSED_HOLDERS = 100
PAUSED_TTL_S = 60
"""Long enough for all of them to have staged something before the first one is late."""


@pytest.fixture(autouse=True)
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    use_clock(monkeypatch, FastClock())


def histories(folder: Path, count: int) -> list[History]:
    async def work() -> list[History]:
        recorded: list[History] = []
        async with plane(f"disk://{folder}/store") as port:
            for first in range(0, count, AT_ONCE):
                numbers = range(first, min(first + AT_ONCE, count))
                runs = [record(port, f"h{n}", SEED + n, OPERATIONS) for n in numbers]
                recorded += await asyncio.gather(*runs)
        return recorded

    return run_fast(work)


def violations(recorded: list[History]) -> list[Violation]:
    found = [first_violation(history.operations) for history in recorded]
    return [violation for violation in found if violation is not None]


@pytest.mark.parametrize("count", [HISTORIES_BRIEF, pytest.param(HISTORIES, marks=pytest.mark.long)])
def test_every_history_could_have_come_from_one_exclusive_lease_per_key(tmp_path: Path, count: int) -> None:
    recorded = histories(tmp_path, count)

    assert violations(recorded) == [], f"seed {SEED}"
    told = Counter(
        (operation.name, operation.result == REFUSED)
        for history in recorded
        for operation in history.operations
    )
    assert sum(told.values()) >= count * OPERATIONS
    # Both ends of every race must have been seen, or the histories show nothing.
    assert (
        min(told[name, refused] for name in ("acquire", "update") for refused in (True, False)) > count // 2
    ), told


def test_tokens_strictly_rise_and_none_is_given_twice(tmp_path: Path) -> None:
    for history in histories(tmp_path, 4):
        grants = [one for one in history.operations if isinstance(one.result, Granted)]
        for key in {grant.key for grant in grants}:
            of_key = [grant for grant in grants if grant.key == key]
            tokens = [grant.result.token for grant in of_key if isinstance(grant.result, Granted)]
            assert len(set(tokens)) == len(tokens)
            for earlier in of_key:
                for later in of_key:
                    if earlier.end_s < later.start_s:
                        assert isinstance(earlier.result, Granted) and isinstance(later.result, Granted)
                        assert earlier.result.token < later.result.token


def test_a_holder_that_paused_is_always_refused(tmp_path: Path) -> None:
    async def pause(port: int, number: int) -> tuple[list[int], object]:
        wire = await WireClient.connect(port)
        held = await wire.acquire(f"paused-{number}", "sleeper", ttl_s=PAUSED_TTL_S)
        assert held is not None
        assert (await wire.update(held, "staged")).status == 200
        await asyncio.sleep(PAUSED_TTL_S + 1.2)  # An end is a whole second, rounded up.
        if number % 2:
            assert await wire.acquire(held.key, "other", ttl_s=TTL_S, wait_s=30) is not None
        late = [
            (await wire.update(held, "late")).status,
            (await wire.keepalive(held, TTL_S)).status,
            (await wire.call("POST", f"/v1/remove?key={held.key}", held.headers)).status,
            (await wire.call("POST", f"/v1/get?key={held.key}", held.headers)).status,
        ]
        await wire.release(held)
        document = await wire.read(held.key)
        wire.close()
        return late, document

    async def work() -> list[tuple[list[int], object]]:
        async with plane(f"disk://{tmp_path}/store") as port:
            return await asyncio.gather(*[pause(port, number) for number in range(PAUSED_HOLDERS)])

    assert run_fast(work) == [([403] * 4, None)] * PAUSED_HOLDERS


# -- mutants: each is a fault of the kind that the checker is there for


def stuck_token(**members: Any) -> Lease:
    if "lease_id" in members:
        members["fencing_token"] = max(1, members["fencing_token"] - 1)
    return Lease(**members)


def believing_check(claim: Claim, lease: Lease | None, now_ms: int) -> Lease:
    return lease or Lease(lease_id=claim.lease_id, txn_id=claim.txn_id or "")


async def indiscreet_see(
    self: state_service.StateService, member: Member, see: Callable[[staging.View], T]
) -> T:
    document = await DOCUMENTS.fetch(self._store, *member)
    lease = await LEASES.fetch(self._store, *member)
    stage = None if lease is None else await STAGES.fetch(self._store, lease.txn_id, *member)
    return see(staging.staged_view(document or staging.NOTHING, stage))


@pytest.mark.parametrize(
    ("place", "mutant", "caught_by"),
    [
        pytest.param((lease_rules, "Lease"), stuck_token, {"acquire"}, id="token-not-bumped"),
        pytest.param(
            (state_holding, "check_claim"), believing_check, {"update", "read_own"}, id="stale-token-accepted"
        ),
        pytest.param(
            (state_service.StateService, "see_public"), indiscreet_see, {"read"}, id="staged-data-shown"
        ),
    ],
)
def test_a_mutant_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[object, str],
    mutant: object,
    caught_by: set[str],
) -> None:
    monkeypatch.setattr(*place, mutant)

    found = violations(histories(tmp_path, AT_ONCE))

    assert {violation.operation.name for violation in found} & caught_by
